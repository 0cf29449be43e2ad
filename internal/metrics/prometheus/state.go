// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// ClusterState is the current state of a cluster in the metrics of kube-state-metrics, for use without a Kubernetes API. It reads the data
// that several of its methods need once. It is not safe for concurrent use.
type ClusterState struct {
	*queries

	owners     *ownerReader
	namespaces []string
	read       *inventory
	missing    []string
}

// MissingMetrics returns a sentence for each metric that the methods called so far did not find: its name, the consequence and the remedy.
func (t *ClusterState) MissingMetrics() []string { return slices.Clone(t.missing) }

func (t *ClusterState) addMissing(text string) {
	if !slices.Contains(t.missing, text) {
		t.missing = append(t.missing, text)
	}
}

// inventory reads the inventory once.
func (t *ClusterState) inventory(ctx context.Context) (*inventory, error) {
	if t.read != nil {
		return t.read, nil
	}

	inv, err := t.readInventory(ctx)
	if err != nil {
		return nil, err
	}

	switch {
	case len(inv.pods) == 0:
		t.addMissing(containerInfoMetric + ": no container of a pod, so no workload; scrape kube-state-metrics, or set a kubeconfig")
	case inv.requests == 0:
		t.addMissing(requestsMetric + ": current requests are unknown, so there is no comparison and no saving")
	}

	t.read = inv
	return inv, nil
}

// Workloads returns the workloads that have pods, as Source.Inventory describes.
func (t *ClusterState) Workloads(ctx context.Context) ([]workload.Workload, error) {
	inv, err := t.inventory(ctx)
	if err != nil {
		return nil, err
	}

	return inv.workloads(), nil
}

// HasRequests reports whether any request is exported. Where it is false, containers without a request are indistinguishable from those
// whose request is not exported.
func (t *ClusterState) HasRequests() bool { return t.read == nil || t.read.requests > 0 }

// Cluster returns all nodes, and the pods of the namespaces. Nodes have those of their labels that keys lists: kube-state-metrics changes
// the spelling of labels, which can only be reversed for known ones.
func (t *ClusterState) Cluster(ctx context.Context, keys []string) (workload.Cluster, error) {
	inv, err := t.inventory(ctx)
	if err != nil {
		return workload.Cluster{}, err
	}

	out := workload.Cluster{Pods: inv.clusterPods()}
	if out.Nodes, err = t.nodes(ctx, inv, keys); err != nil {
		return workload.Cluster{}, err
	}

	return out, nil
}

// NodeGroups returns the nodes grouped by pool, where kube-state-metrics exports the labels of pools, else by size. It does not contain
// allocatable amounts; Source.Constraints returns the largest.
func (t *ClusterState) NodeGroups(ctx context.Context) (rightsize.NodeGroups, error) {
	inv, err := t.inventory(ctx)
	if err != nil {
		return rightsize.NodeGroups{}, err
	}

	nodes, err := t.nodes(ctx, inv, rightsize.NodePoolLabels())
	if err != nil {
		return rightsize.NodeGroups{}, err
	}

	shapes := make([]rightsize.NodeShape, 0, len(nodes))
	for _, n := range nodes {
		shapes = append(shapes, rightsize.NodeShape{
			Name:   n.Name,
			Labels: n.Labels,
			CPU:    n.Size.CPU,
			Memory: n.Size.Memory,
		})
	}

	return rightsize.GroupNodes(shapes), nil
}

// Autoscalers returns the HorizontalPodAutoscalers of the namespaces that have a utilization target. kube-state-metrics does not
// distinguish the target of one container from that of the whole pod, so it applies to all containers.
func (t *ClusterState) Autoscalers(ctx context.Context) ([]metrics.Autoscaler, error) {
	inv, err := t.inventory(ctx)
	if err != nil {
		return nil, err
	}

	infos, err := t.Instant(ctx, t.expr.latest(autoscalerMetric, "namespace, horizontalpodautoscaler, scaletargetref_kind, scaletargetref_name"), inv.at)
	if err != nil {
		return nil, fmt.Errorf("autoscalers: %w", err)
	}

	if len(infos) == 0 {
		t.addMissing(autoscalerMetric + ": no autoscaler is known; if there are any, configure kube-state-metrics to export them")
		return nil, nil
	}

	// Names are joined to their workloads here, since the metric of the targets lacks them.
	targets := map[objectName]workload.Ref{}
	for _, i := range infos {
		l := i.Labels
		if l["scaletargetref_name"] != "" && t.includes(l["namespace"]) {
			targets[objectName{l["namespace"], l["horizontalpodautoscaler"]}] = newRef(l["namespace"], l["scaletargetref_kind"], l["scaletargetref_name"])
		}
	}

	values, err := t.Instant(ctx, t.expr.latest(autoscalerTargetMetric, "namespace, horizontalpodautoscaler, metric_name, metric_target_type"), inv.at)
	if err != nil {
		return nil, fmt.Errorf("targets of autoscalers: %w", err)
	}

	if len(values) == 0 {
		t.addMissing(autoscalerTargetMetric + ": the targets of autoscalers are unknown, so requests are sized without regard to them")
	}

	return autoscalersOf(targets, values), nil
}

// autoscalersOf joins autoscalers with their utilization targets and sorts them by namespace and name.
func autoscalersOf(targets map[objectName]workload.Ref, values []metrics.Sample) []metrics.Autoscaler {
	byName := map[objectName]metrics.Autoscaler{}
	for _, v := range values {
		key := objectName{v.Labels["namespace"], v.Labels["horizontalpodautoscaler"]}
		target, ok := targets[key]
		if !ok || v.Labels["metric_target_type"] != "utilization" || !(v.Value > 0 && v.Value <= maxAmount) {
			continue
		}

		a := byName[key]
		a.Name = key.name
		a.Target = target
		switch v.Labels["metric_name"] {
		case "cpu":
			a.CPU = units.Ratio(v.Value / 100)
		case "memory":
			a.Memory = units.Ratio(v.Value / 100)
		default:
			continue
		}

		byName[key] = a
	}

	out := make([]metrics.Autoscaler, 0, len(byName))
	for _, a := range byName {
		out = append(out, a)
	}

	slices.SortFunc(out, func(a, b metrics.Autoscaler) int {
		return cmp.Or(cmp.Compare(a.Target.Namespace, b.Target.Namespace), cmp.Compare(a.Name, b.Name))
	})

	return out
}

// includes reports whether the state covers a namespace.
func (t *ClusterState) includes(namespace string) bool {
	return len(t.namespaces) == 0 || slices.Contains(t.namespaces, namespace)
}
