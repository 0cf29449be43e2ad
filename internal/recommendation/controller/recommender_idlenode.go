// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/idlenode"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/recommend/packing"
	"crane.io/crane/pkg/series"
)

// idleNodeRecommender finds nodes that could go.
func idleNodeRecommender() recommender {
	return recommender{
		name:     string(analysisv1alpha1.AnalysisTypeIdleNode),
		supports: supportsKinds("Node"),
		configure: func(config map[string]string) (evaluator, error) {
			s, err := idlenode.ParseSettings(config)
			return &idleNodeEvaluator{settings: s}, err
		},
	}
}

type idleNodeEvaluator struct {
	settings idlenode.Settings

	capacity []packing.Node
	index    map[string]int
	pods     map[string][]pod
	// figures by the name of a node.
	otherPods, cpuUse, memoryUse, cpuRequest, memoryRequest map[string]observation.Hours
}

// nodesPerQuery is how many nodes one query names.
const nodesPerQuery = 200

// nodeStep is the step of the use of nodes; the most of each hour counts.
const nodeStep = 5 * time.Minute

func (j *idleNodeEvaluator) gather(ctx context.Context, w *passData, targets []workload.Workload) error {
	if _, err := w.allNodes(ctx); err != nil {
		return err
	}
	all, err := w.pods(ctx)
	if err != nil {
		return err
	}
	w.prices(ctx)
	j.capacity, j.index, j.pods = w.nodeCapacity(), map[string]int{}, map[string][]pod{}
	for i, n := range j.capacity {
		j.index[n.Name] = i
	}
	for _, p := range all {
		j.pods[p.Node] = append(j.pods[p.Node], p)
	}
	s := j.settings
	byNode := func(h metrics.HourlySeries) string { return h.Key.Node }
	for _, f := range []struct {
		wanted bool
		of     metrics.HourlyMetric
		hours  int
		into   *map[string]observation.Hours
	}{
		{true, metrics.NodePods, s.EmptyHours, &j.otherPods},
		{s.CPURequest > 0, metrics.NodeCPURequests, s.Hours, &j.cpuRequest},
		{s.MemoryRequest > 0, metrics.NodeMemoryRequests, s.Hours, &j.memoryRequest},
	} {
		if !f.wanted {
			continue
		}
		list, err := w.hourlyFigures(ctx, f.of, nil, f.hours)
		if err != nil {
			return err
		}
		*f.into = hoursByKey(list, byNode)
	}
	if s.CPUUse > 0 {
		if j.cpuUse, err = nodeUse(ctx, w, metrics.CPU, targets, s.Hours); err != nil {
			return err
		}
	}
	if s.MemoryUse > 0 {
		if j.memoryUse, err = nodeUse(ctx, w, metrics.Memory, targets, s.Hours); err != nil {
			return err
		}
	}
	return nil
}

// nodeUse is the most that nodes used in each hour.
func nodeUse(ctx context.Context, w *passData, of metrics.Resource, targets []workload.Workload, hours int) (map[string]observation.Hours, error) {
	if w.history.Aggregates == nil {
		return nil, wrapSourceError(errNoHourlyData)
	}
	reading, cancel := context.WithTimeout(ctx, w.historyTimeout)
	defer cancel()
	out := map[string]observation.Hours{}
	window := metrics.Window{Start: w.historyEnd.Add(-time.Duration(hours) * time.Hour), End: w.historyEnd, Step: nodeStep}
	for chunk := range slices.Chunk(targets, nodesPerQuery) {
		names := make([]string, len(chunk))
		for i, t := range chunk {
			names[i] = t.Name
		}
		found, err := w.history.Aggregates.NodeUsage(reading, metrics.NodesRequest{Resource: of, Names: names, Window: window})
		if err != nil {
			return nil, wrapSourceError(err)
		}
		for name, s := range found {
			out[name] = hourlyMax(s, w.historyEnd, hours)
		}
	}
	return out, nil
}

// hourlyMax is the largest value of each of so many hours before an end.
func hourlyMax(s series.Series, end time.Time, hours int) observation.Hours {
	out := observation.Unknown(hours)
	first := end.Add(-time.Duration(hours) * time.Hour)
	for i, v := range s.Values {
		at := s.Time(i)
		if !observation.IsKnown(v) || at.Before(first) || !at.Before(end) {
			continue
		}
		hour := &out[int(at.Sub(first)/time.Hour)]
		if !observation.IsKnown(*hour) || v > *hour {
			*hour = v
		}
	}
	return out
}

func (j *idleNodeEvaluator) decide(w *passData, target workload.Workload) (decision, error) {
	i, known := j.index[target.Name]
	if !known {
		return decision{plan: recommend.Plan{State: recommend.Clear, Description: "It is gone."}}, nil
	}
	node := &w.objects.nodes[i]
	in := idlenode.Input{
		Ready: workload.NodeReady(node), ControlPlane: isControlPlane(node), Capacity: workload.AmountsOf(node.Status.Capacity),
		OtherPods: j.otherPods[target.Name], CPUUse: j.cpuUse[target.Name], MemoryUse: j.memoryUse[target.Name],
		CPURequest: j.cpuRequest[target.Name], MemoryRequest: j.memoryRequest[target.Name],
		OtherNodes: slices.Clone(j.capacity),
	}
	in.OtherNodes[i].FreePods = 0 // Not on this one.
	for _, p := range j.pods[target.Name] {
		allowed, err := w.allowedNodes(p)
		if err != nil {
			return decision{}, err
		}
		in.Pods = append(in.Pods, idlenode.Pod{
			Demand:      packing.Demand{Name: p.namespace + "/" + p.Name, Requests: p.Requests, Allowed: allowed},
			OnEveryNode: p.onEveryNode, Unmanaged: p.unmanaged,
		})
	}
	out := decision{plan: idlenode.Decide(in, j.settings)}
	if out.plan.Action == recommend.Delete {
		// The next node is looked at as if this one had gone: all that are named can go together.
		j.capacity, _ = packing.Place(in.Demands(), in.OtherNodes)
		out.savings, out.pricesUnknown = w.nodeSavings(node), w.read.prices == nil
	}
	return out, nil
}

// nodeSavings is what a node costs; nil where it has no price.
func (w *passData) nodeSavings(n *corev1.Node) *analysisv1alpha1.Savings {
	if w.read.prices == nil {
		return nil
	}
	quote, known := w.read.prices.tariff.Quote(n.Name)
	if !known {
		return nil
	}
	return &analysisv1alpha1.Savings{
		CPU: *n.Status.Capacity.Cpu(), Memory: *n.Status.Capacity.Memory(),
		Monthly:  strconv.FormatFloat(quote.Cost.Total().PerMonth(), 'f', 2, 64),
		Currency: w.read.prices.tariff.Currency, PricedFrom: "the node, group " + quote.Group,
	}
}

// isControlPlane tells of nodes that carry the cluster's own.
func isControlPlane(n *corev1.Node) bool {
	for _, key := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if _, there := n.Labels[key]; there {
			return true
		}
	}
	return false
}
