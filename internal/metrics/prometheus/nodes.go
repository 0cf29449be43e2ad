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
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/series"
)

// Metrics of kube-state-metrics that describe nodes and autoscalers.
const (
	allocatableMetric      = "kube_node_status_allocatable"
	capacityMetric         = "kube_node_status_capacity"
	nodeLabelsMetric       = "kube_node_labels"
	autoscalerMetric       = "kube_horizontalpodautoscaler_info"
	autoscalerTargetMetric = "kube_horizontalpodautoscaler_spec_target_metric"
)

// Constraints are the largest CPU and memory that any node has for pods, each for itself, in one query; 0 where there
// is no such metric. Of autoscalers nothing is said: ClusterState.Autoscalers lists them.
func (s *Source) Constraints(ctx context.Context) (workload.Constraints, error) {
	sel := selector(allocatableMetric, s.matchers(Matcher{Label: "resource", Op: "=~", Value: "cpu|memory"})...)
	list, err := s.Instant(ctx, fmt.Sprintf("max by (resource) (last_over_time(%s[%s]))", sel, promDuration(inventoryWindow)), s.now())
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
			out.MaxCPU = series.MilliCPU(math.Round(v * 1000))
		case "memory":
			out.MaxMemory = series.Bytes(v)
		}
	}
	return out, nil
}

// latest are the values of a metric that are not older than the inventory window, whatever the namespace.
func (s *Source) latest(ctx context.Context, metric, by string, at time.Time, own ...Matcher) ([]metrics.Sample, error) {
	sel := selector(metric, s.matchers(own...)...)
	return s.Instant(ctx, fmt.Sprintf("max by (%s) (last_over_time(%s[%s]))", by, sel, promDuration(inventoryWindow)), at)
}

// nodes lists them with their capacity, which is what is paid for, and those of their labels that are looked for.
func (t *ClusterState) nodes(ctx context.Context, inv *inventory, keys []string) ([]cost.Node, error) {
	byName := map[string]*cost.Node{}
	find := func(name string) *cost.Node {
		n := byName[name]
		if n == nil && name != "" {
			n = &cost.Node{Name: name, Labels: map[string]string{}}
			byName[name] = n
		}
		return n
	}
	infos, err := t.source.latest(ctx, nodeInfoMetric, "node", inv.at)
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	for _, i := range infos {
		find(i.Labels["node"])
	}
	sized := 0
	priced := Matcher{Label: "resource", Op: "=~", Value: strings.Join(append([]string{"cpu", "memory"}, gpuResources()...), "|")}
	for _, metric := range []string{capacityMetric, allocatableMetric} {
		sizes, err := t.source.latest(ctx, metric, "node, resource", inv.at, priced)
		if err != nil {
			return nil, fmt.Errorf("sizes of nodes: %w", err)
		}
		for _, size := range sizes {
			if n := find(size.Labels["node"]); n != nil && size.Value >= 0 && size.Value <= maxAmount {
				setAmount(&n.Size, size.Labels["resource"], size.Value)
				sized++
			}
		}
		if sized > 0 {
			break
		}
		if metric == capacityMetric {
			t.addMissing(capacityMetric + ": what nodes hold is taken from " + allocatableMetric + ", without what the system keeps for itself")
		}
	}
	if sized == 0 {
		t.addMissing("sizes of nodes: neither " + capacityMetric + " nor " + allocatableMetric + " is there, so no node has a price")
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

// nodeLabels adds the labels that keys name. kube-state-metrics exports labels of nodes only where it is told to.
func (t *ClusterState) nodeLabels(ctx context.Context, inv *inventory, keys []string, byName map[string]*cost.Node) error {
	sel := selector(nodeLabelsMetric, t.source.matchers()...)
	list, err := t.source.Instant(ctx, fmt.Sprintf("last_over_time(%s[%s])", sel, promDuration(inventoryWindow)), inv.at)
	if err != nil {
		return fmt.Errorf("labels of nodes: %w", err)
	}
	spelt := map[string][]string{}
	invalid := regexp.MustCompile(`[^a-zA-Z0-9_]`)
	for _, key := range keys {
		name := labelPrefix + invalid.ReplaceAllString(key, "_")
		spelt[name] = append(spelt[name], key)
	}
	labelled := map[string]bool{}
	for _, sample := range list {
		n := byName[sample.Labels["node"]]
		if n == nil {
			continue
		}
		for label, value := range sample.Labels {
			if !strings.HasPrefix(label, labelPrefix) {
				continue
			}
			labelled[n.Name] = true
			for _, key := range spelt[label] {
				n.Labels[key] = value
			}
		}
	}
	if without := len(byName) - len(labelled); without > 0 && len(keys) > 0 {
		t.addMissing(fmt.Sprintf("%s: the labels of %d of %d nodes are not known, so these have the price of nodes without labels; "+
			"start kube-state-metrics with --metric-labels-allowlist=nodes=[*]", nodeLabelsMetric, without, len(byName)))
	}
	return nil
}

// labelPrefix is what kube-state-metrics puts before the name of a Kubernetes label.
const labelPrefix = "label_"

func compareNames(a, b, x, y string) int { return cmp.Or(cmp.Compare(a, b), cmp.Compare(x, y)) }
