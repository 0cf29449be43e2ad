// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/units"
)

// Metrics of kube-state-metrics about nodes and autoscalers.
const (
	allocatableMetric      = "kube_node_status_allocatable"
	capacityMetric         = "kube_node_status_capacity"
	nodeLabelsMetric       = "kube_node_labels"
	autoscalerMetric       = "kube_horizontalpodautoscaler_info"
	autoscalerTargetMetric = "kube_horizontalpodautoscaler_spec_target_metric"
)

// Constraints returns the largest allocatable CPU and the largest allocatable memory of any node, with one query; 0 without the metric. It
// does not contain autoscalers; ClusterState.Autoscalers lists them.
func (s *Source) Constraints(ctx context.Context) (workload.Constraints, error) {
	list, err := s.Instant(ctx, s.expr.latest(allocatableMetric, "resource", Matcher{Label: "resource", Op: "=~", Value: "cpu|memory"}), s.now())
	if err != nil {
		return workload.Constraints{}, fmt.Errorf("the largest node: %w", err)
	}

	var out workload.Constraints
	for _, sample := range list {
		v := sample.Value
		if !(v > 0 && v <= maxAmount) {
			continue
		}

		switch sample.Labels["resource"] {
		case "cpu":
			out.MaxCPU = units.MilliCPU(math.Round(v * 1000))
		case "memory":
			out.MaxMemory = units.Bytes(v)
		}
	}

	return out, nil
}

// nodesByName holds nodes under construction.
type nodesByName map[string]*cost.Node

// node returns the node of a name and adds it where it is missing; nil for an empty name.
func (m nodesByName) node(name string) *cost.Node {
	n := m[name]
	if n == nil && name != "" {
		n = &cost.Node{Name: name, Labels: map[string]string{}}
		m[name] = n
	}

	return n
}

// nodes returns the nodes with their capacity, which determines the price, and the labels that keys lists, sorted by name.
func (t *ClusterState) nodes(ctx context.Context, inv *inventory, keys []string) ([]cost.Node, error) {
	byName := nodesByName{}
	infos, err := t.Instant(ctx, t.expr.latest(nodeInfoMetric, "node"), inv.at)
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}

	for _, i := range infos {
		byName.node(i.Labels["node"])
	}

	if err := t.nodeSizes(ctx, inv, byName); err != nil {
		return nil, err
	}

	if err := t.nodeLabels(ctx, inv, keys, byName); err != nil {
		return nil, err
	}

	out := make([]cost.Node, 0, len(byName))
	for _, n := range byName {
		out = append(out, *n)
	}

	slices.SortFunc(out, func(a, b cost.Node) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// nodeSizes sets the sizes of nodes to their capacity, or to the allocatable amounts where capacity is not exported.
func (t *ClusterState) nodeSizes(ctx context.Context, inv *inventory, byName nodesByName) error {
	priced := OneOf("resource", append([]string{"cpu", "memory"}, gpuResources()...))
	for _, metric := range []string{capacityMetric, allocatableMetric} {
		sizes, err := t.Instant(ctx, t.expr.latest(metric, "node, resource", priced), inv.at)
		if err != nil {
			return fmt.Errorf("sizes of nodes: %w", err)
		}

		sized := false
		for _, size := range sizes {
			if n := byName.node(size.Labels["node"]); n != nil && size.Value >= 0 && size.Value <= maxAmount {
				setAmount(&n.Size, size.Labels["resource"], size.Value)
				sized = true
			}
		}

		if sized {
			return nil
		}

		// The allocatable amounts come next; the user should learn why prices are lower.
		if metric == capacityMetric {
			t.addMissing(capacityMetric + ": the sizes of nodes come from " + allocatableMetric + ", without the part that is reserved for the system")
		}
	}

	t.addMissing("sizes of nodes: neither " + capacityMetric + " nor " + allocatableMetric + " is there, so no node has a price")
	return nil
}

// nodeLabels adds the labels that keys lists. kube-state-metrics exports labels of nodes only where it is configured to.
func (t *ClusterState) nodeLabels(ctx context.Context, inv *inventory, keys []string, byName nodesByName) error {
	list, err := t.Instant(ctx, fmt.Sprintf("last_over_time(%s[%s])", t.expr.selector(nodeLabelsMetric), promDuration(inventoryWindow)), inv.at)
	if err != nil {
		return fmt.Errorf("labels of nodes: %w", err)
	}

	// kube-state-metrics replaces characters that label names of Prometheus cannot have, so several keys may share a name.
	exported := map[string][]string{}
	invalid := regexp.MustCompile(`[^a-zA-Z0-9_]`)
	for _, key := range keys {
		name := labelPrefix + invalid.ReplaceAllString(key, "_")
		exported[name] = append(exported[name], key)
	}

	labeled := map[string]bool{}
	for _, sample := range list {
		n := byName[sample.Labels["node"]]
		if n == nil {
			continue
		}

		for label, value := range sample.Labels {
			if !strings.HasPrefix(label, labelPrefix) {
				continue
			}

			labeled[n.Name] = true
			for _, key := range exported[label] {
				n.Labels[key] = value
			}
		}
	}

	if without := len(byName) - len(labeled); without > 0 && len(keys) > 0 {
		t.addMissing(fmt.Sprintf("%s: the labels of %d of %d nodes are not known, so these have the price of nodes without labels; "+
			"start kube-state-metrics with --metric-labels-allowlist=nodes=[*]", nodeLabelsMetric, without, len(byName)))
	}

	return nil
}

// labelPrefix is the prefix that kube-state-metrics adds to the name of a Kubernetes label.
const labelPrefix = "label_"
