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
)

// idleNodeEvaluator finds nodes that could be removed.
type idleNodeEvaluator struct {
	settings idlenode.Settings

	capacity []packing.Node
	index    map[string]int
	pods     map[string][]pod
	// The figures are by node name.
	otherPods, cpuUse, memoryUse, cpuRequest, memoryRequest map[string]observation.Hours
}

const (
	// nodesPerQuery bounds the number of nodes that one query names.
	nodesPerQuery = 200
	// nodeStep is the step of node usage; the maximum of each hour counts.
	nodeStep = 5 * time.Minute
)

func (e *idleNodeEvaluator) gather(ctx context.Context, d *runData, targets []workload.Workload) error {
	if _, err := d.allNodes(ctx); err != nil {
		return err
	}

	all, err := d.pods(ctx)
	if err != nil {
		return err
	}

	d.prices(ctx)
	e.capacity = d.nodeCapacity()
	e.index = map[string]int{}
	e.pods = map[string][]pod{}
	for i, n := range e.capacity {
		e.index[n.Name] = i
	}

	for _, p := range all {
		e.pods[p.Node] = append(e.pods[p.Node], p)
	}

	// Figures whose threshold is 0 are not compared, so they are not read.
	s := e.settings
	ofNodes := func(metric metrics.HourlyMetric, hours int) (map[string]observation.Hours, error) {
		return readHours(ctx, d, metric, nil, hours, func(h metrics.HourlySeries) string { return h.Key.Node })
	}

	if e.otherPods, err = ofNodes(metrics.NodePods, s.EmptyHours); err != nil {
		return err
	}

	if s.CPURequest > 0 {
		if e.cpuRequest, err = ofNodes(metrics.NodeCPURequests, s.Hours); err != nil {
			return err
		}
	}

	if s.MemoryRequest > 0 {
		if e.memoryRequest, err = ofNodes(metrics.NodeMemoryRequests, s.Hours); err != nil {
			return err
		}
	}

	if s.CPUUse > 0 {
		if e.cpuUse, err = nodeUsage(ctx, d, metrics.CPU, targets, s.Hours); err != nil {
			return err
		}
	}

	if s.MemoryUse > 0 {
		e.memoryUse, err = nodeUsage(ctx, d, metrics.Memory, targets, s.Hours)
	}

	return err
}

// nodeUsage returns the maximum usage of nodes in each hour, by node name.
func nodeUsage(ctx context.Context, d *runData, usageKind metrics.UsageKind, targets []workload.Workload, hours int) (map[string]observation.Hours, error) {
	if d.history.Aggregates == nil {
		return nil, wrapSourceError(errNoHourlyData)
	}

	readCtx, cancel := context.WithTimeout(ctx, d.historyTimeout)
	defer cancel()

	out := map[string]observation.Hours{}
	window := metrics.Window{Start: d.historyEnd.Add(-time.Duration(hours) * time.Hour), End: d.historyEnd, Step: nodeStep}
	for chunk := range slices.Chunk(targets, nodesPerQuery) {
		names := make([]string, len(chunk))
		for i, t := range chunk {
			names[i] = t.Name
		}

		found, err := d.history.Aggregates.NodeUsage(readCtx, metrics.NodesRequest{Resource: usageKind, Names: names, Window: window})
		if err != nil {
			return nil, wrapSourceError(err)
		}

		for name, s := range found {
			out[name] = observation.HourlyMax(s, d.historyEnd, hours)
		}
	}

	return out, nil
}

func (e *idleNodeEvaluator) decide(d *runData, target workload.Workload) (decision, error) {
	i, exists := e.index[target.Name]
	if !exists {
		return decision{plan: recommend.ClearPlan("It is gone.")}, nil
	}

	node := &d.objects.nodes[i]
	in := idlenode.Input{
		Ready:         workload.NodeReady(node),
		ControlPlane:  isControlPlane(node),
		Capacity:      workload.AmountsOf(node.Status.Capacity),
		OtherPods:     e.otherPods[target.Name],
		CPUUse:        e.cpuUse[target.Name],
		MemoryUse:     e.memoryUse[target.Name],
		CPURequest:    e.cpuRequest[target.Name],
		MemoryRequest: e.memoryRequest[target.Name],
		OtherNodes:    slices.Clone(e.capacity),
	}

	in.OtherNodes[i].FreePods = 0 // The node itself takes no pods.
	for _, p := range e.pods[target.Name] {
		allowed, err := d.allowedNodes(p)
		if err != nil {
			return decision{}, err
		}

		in.Pods = append(in.Pods, idlenode.Pod{
			Demand:      packing.Demand{Name: p.namespace + "/" + p.Name, Requests: p.Requests, Allowed: allowed},
			OnEveryNode: p.onEveryNode, Unmanaged: p.unmanaged,
		})
	}

	out := decision{plan: idlenode.Decide(in, e.settings)}
	if out.plan.Action == recommend.Delete {
		// The following nodes are evaluated as if this one was removed, so that all proposed nodes can be removed together.
		e.capacity, _ = packing.Place(in.Demands(), in.OtherNodes)
		out.savings = d.nodeSavings(node)
		out.pricesUnknown = d.read.prices == nil
	}

	return out, nil
}

// nodeSavings returns the cost of a node; nil if its price is unknown.
func (d *runData) nodeSavings(n *corev1.Node) *analysisv1alpha1.Savings {
	if d.read.prices == nil {
		return nil
	}

	quote, ok := d.read.prices.tariff.Quote(n.Name)
	if !ok {
		return nil
	}

	return &analysisv1alpha1.Savings{
		CPU:        *n.Status.Capacity.Cpu(),
		Memory:     *n.Status.Capacity.Memory(),
		Monthly:    strconv.FormatFloat(quote.Cost.Total().PerMonth(), 'f', 2, 64),
		Currency:   d.read.prices.tariff.Currency,
		PricedFrom: "the node, group " + quote.Group,
	}
}

// isControlPlane reports whether a node runs the control plane.
func isControlPlane(n *corev1.Node) bool {
	for _, key := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if _, ok := n.Labels[key]; ok {
			return true
		}
	}

	return false
}
