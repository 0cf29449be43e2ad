// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/nodeload"
)

// nodeView lists the nodes of the cluster.
type nodeView struct {
	*viewAccess
	nodes *dashboard.Shared[contract.NodeList]
}

func newNodeView(a *viewAccess) *nodeView {
	v := &nodeView{viewAccess: a}
	v.nodes = shared(a, v.readNodes, rowsTTL)
	return v
}

// Nodes implements dashboard.Backend.
func (v *nodeView) Nodes(ctx context.Context) (contract.NodeList, error) {
	if v.fromFiles() {
		return contract.NodeList{}, dashboard.NotServed("files have no nodes", "")
	}

	return valueOf(ctx, v.nodes, func(out *contract.NodeList, stale string) { out.Stale = stale })
}

func (v *nodeView) readNodes(ctx context.Context) (*contract.NodeList, error) {
	out := &contract.NodeList{Origin: v.origin(), Currency: v.Prices.Currency, Nodes: []contract.Node{}}
	lister, _, err := v.Personal.Lister()
	if err != nil {
		return nil, err
	}

	var priced []cost.Node
	if err := lister.EachNode(ctx, func(n *corev1.Node) error {
		out.Nodes = append(out.Nodes, nodeOf(n, v.Clock.Now()))
		priced = append(priced, cost.Node{Name: n.Name, Labels: n.Labels, Size: workload.AmountsOf(n.Status.Capacity)})
		return nil
	}); err != nil {
		return nil, unavailable(err)
	}

	index := map[string]*contract.Node{}
	for i := range out.Nodes {
		index[out.Nodes[i].Name] = &out.Nodes[i]
	}

	c, err := v.Personal.ObjectClient()
	if err != nil {
		return nil, err
	}

	details := nodeDetails{v.CranedNamespace, c, out, index}
	// Zones first: the pods that follow are added to them.
	details.readZones(ctx)

	if err := lister.EachPod(ctx, nil, func(object *corev1.Pod, p workload.Pod, _ bool) error {
		if n := index[p.Node]; n != nil {
			n.Pods++
			n.CPURequested += int64(p.Requests.CPU)
			n.MemRequested += int64(p.Requests.Memory)
			addPinned(n, object)
		}

		return nil
	}); err != nil {
		return nil, unavailable(err)
	}

	details.readWaterMarks(ctx)
	details.readEvents(ctx)
	return out, v.priceNodes(priced, index)
}

func (v *nodeView) priceNodes(nodes []cost.Node, index map[string]*contract.Node) error {
	tariff, err := cost.NewTariff(v.Prices, nodes)
	if err != nil {
		return fmt.Errorf("pricing the nodes: %w", err)
	}

	for _, q := range cost.Allocate(tariff, nil).Nodes {
		if n := index[q.Node]; n != nil {
			month := q.Cost.Total().PerMonth()
			n.PricePerMonth = &month
			n.Pool = q.Group
		}
	}

	return nil
}

// nodeOf returns a node with its loads, without those that are older than loadAge.
func nodeOf(n *corev1.Node, now time.Time) contract.Node {
	out := contract.Node{
		Name:          n.Name,
		Ready:         workload.NodeReady(n),
		Unschedulable: n.Spec.Unschedulable,
		CPUMilli:      n.Status.Allocatable.Cpu().MilliValue(),
		MemoryBytes:   n.Status.Allocatable.Memory().Value(),
	}

	for key, text := range n.Annotations {
		// Other annotations of a node are not loads.
		if !strings.Contains(key, "_usage_") {
			continue
		}

		sample, err := nodeload.Format{}.ParseLoad(text)
		if err != nil || now.Sub(sample.Time) > loadAge {
			continue
		}

		if out.Loads == nil {
			out.Loads = map[string]float64{}
		}

		out.Loads[key] = float64(sample.Value)
		if at := sample.Time.Unix(); out.LoadAt == 0 || at < out.LoadAt {
			out.LoadAt = at
		}
	}

	if hot, err := (nodeload.Format{}).ParseHot(n.Annotations[nodeload.HotValueKey]); err == nil && now.Sub(hot.Time) <= loadAge {
		v := float64(hot.Value)
		out.HotValue = &v
	}

	for _, t := range n.Spec.Taints {
		if strings.Contains(t.Key, "crane.io") {
			out.Taints = append(out.Taints, t.Key+":"+string(t.Effect))
		}
	}

	return out
}
