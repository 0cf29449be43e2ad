// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"slices"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/series"
)

// maxAmount is the largest number of cores or bytes that is taken for one: a thousand times as much still fits.
const maxAmount = 1 << 50

// ClusterState is a cluster as kube-state-metrics sees it now, for where no Kubernetes API is at hand. What several of its
// methods need is read once. It is not safe for use by several goroutines.
type ClusterState struct {
	source     *Source
	namespaces []string
	read       *inventory
	missing    []string
}

// ClusterState reads nothing yet. Empty namespaces mean all.
func (s *Source) ClusterState(namespaces []string) *ClusterState {
	return &ClusterState{source: s, namespaces: namespaces}
}

// MissingMetrics says what was looked for and not found by the methods that were called: the metric, what that costs, and how
// to get it.
func (t *ClusterState) MissingMetrics() []string { return slices.Clone(t.missing) }

func (t *ClusterState) addMissing(text string) {
	if !slices.Contains(t.missing, text) {
		t.missing = append(t.missing, text)
	}
}

func (t *ClusterState) inventory(ctx context.Context) (*inventory, error) {
	if t.read != nil {
		return t.read, nil
	}
	inv, err := t.source.readInventory(ctx, t.namespaces)
	if err != nil {
		return nil, err
	}
	switch {
	case len(inv.pods) == 0:
		t.addMissing(containerInfoMetric + ": no container of a pod, so no workload; scrape kube-state-metrics, or give a kubeconfig")
	case inv.requests == 0:
		t.addMissing(requestsMetric + ": nobody's request of today is known, so there is no comparison and no saving")
	}
	t.read = inv
	return inv, nil
}

// Workloads are those that have pods; Inventory says how they are put together.
func (t *ClusterState) Workloads(ctx context.Context) ([]workload.Workload, error) {
	inv, err := t.inventory(ctx)
	if err != nil {
		return nil, err
	}
	return inv.workloads(), nil
}

// HasRequests tells whether anybody's request is known. Where it is false a container without a request cannot be told
// from one whose request nobody exports.
func (t *ClusterState) HasRequests() bool { return t.read == nil || t.read.requests > 0 }

// Cluster lists all nodes, and the pods of the namespaces. kube-state-metrics spells labels in another way than
// Kubernetes, which can be undone for labels that are known: keys are those that are looked for.
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

// podTally is what one pod asks for, by container.
type podTally struct {
	owner    workload.Ref
	node     string
	requests map[string]cost.Amounts
}

// gpuResources are the names of whole GPUs as kube-state-metrics spells them.
func gpuResources() []string {
	return []string{"nvidia_com_gpu", "amd_com_gpu", "gpu_intel_com_i915", "gpu_intel_com_xe"}
}

func (p *podTally) request(container, resource string, value float64) {
	a := p.requests[container]
	setAmount(&a, resource, value)
	p.requests[container] = a
}

// setAmount ignores resources that nobody prices.
func setAmount(a *cost.Amounts, resource string, value float64) {
	switch {
	case resource == "cpu":
		a.CPU = series.MilliCPU(value*1000 + 0.5)
	case resource == "memory":
		a.Memory = series.Bytes(value)
	case slices.Contains(gpuResources(), resource):
		a.GPU += int64(value)
	}
}

// clusterPods are the pods with what the scheduler counts for each: the sum over the containers that stay, or one that
// runs before them and asks for more. Overheads of runtimes are not known, nor is the order of init containers.
func (v *inventory) clusterPods() []workload.Pod {
	out := make([]workload.Pod, 0, len(v.pods))
	for pod, p := range v.pods {
		one := workload.Pod{Name: pod.name, Owner: p.owner, Node: p.node}
		var first cost.Amounts
		for container, a := range p.requests {
			if v.byRef[p.owner].containers[container].role == workload.Init {
				first = cost.Amounts{CPU: max(first.CPU, a.CPU), Memory: max(first.Memory, a.Memory), GPU: max(first.GPU, a.GPU)}
				continue
			}
			one.Requests.CPU += a.CPU
			one.Requests.Memory += a.Memory
			one.Requests.GPU += a.GPU
		}
		one.Requests = cost.Amounts{
			CPU: max(one.Requests.CPU, first.CPU), Memory: max(one.Requests.Memory, first.Memory), GPU: max(one.Requests.GPU, first.GPU),
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b workload.Pod) int {
		return compareNames(a.Owner.Namespace, b.Owner.Namespace, a.Name, b.Name)
	})
	return out
}

// Autoscalers lists the HorizontalPodAutoscalers of the namespaces that have a target in shares of a request.
// kube-state-metrics does not tell a target of one container from one of the whole pod: it counts for all of them.
func (t *ClusterState) Autoscalers(ctx context.Context) ([]metrics.Autoscaler, error) {
	inv, err := t.inventory(ctx)
	if err != nil {
		return nil, err
	}
	targets := map[objectName]workload.Ref{}
	infos, err := t.source.latest(ctx, autoscalerMetric, "namespace, horizontalpodautoscaler, scaletargetref_kind, scaletargetref_name", inv.at)
	if err != nil {
		return nil, fmt.Errorf("autoscalers: %w", err)
	}
	for _, i := range infos {
		l := i.Labels
		if l["scaletargetref_name"] != "" && t.includes(l["namespace"]) {
			targets[objectName{l["namespace"], l["horizontalpodautoscaler"]}] = newRef(l["namespace"], l["scaletargetref_kind"], l["scaletargetref_name"])
		}
	}
	if len(infos) == 0 {
		t.addMissing(autoscalerMetric + ": no autoscaler is known; if there are some, let kube-state-metrics export them")
		return nil, nil
	}
	values, err := t.source.latest(ctx, autoscalerTargetMetric, "namespace, horizontalpodautoscaler, metric_name, metric_target_type", inv.at)
	if err != nil {
		return nil, fmt.Errorf("targets of autoscalers: %w", err)
	}
	if len(values) == 0 {
		t.addMissing(autoscalerTargetMetric + ": what the autoscalers aim at is not known, so requests are sized as if nothing scaled on them")
	}
	byName := map[objectName]*metrics.Autoscaler{}
	for _, v := range values {
		key := objectName{v.Labels["namespace"], v.Labels["horizontalpodautoscaler"]}
		target, known := targets[key]
		if !known || v.Labels["metric_target_type"] != "utilization" || !(v.Value > 0 && v.Value <= maxAmount) {
			continue
		}
		a := byName[key]
		if a == nil {
			a = &metrics.Autoscaler{Name: key.name, Target: target}
		}
		switch v.Labels["metric_name"] {
		case "cpu":
			a.CPU = series.Ratio(v.Value / 100)
		case "memory":
			a.Memory = series.Ratio(v.Value / 100)
		default:
			continue
		}
		byName[key] = a
	}
	return sortedAutoscalers(byName), nil
}

func sortedAutoscalers(byName map[objectName]*metrics.Autoscaler) []metrics.Autoscaler {
	out := make([]metrics.Autoscaler, 0, len(byName))
	for _, a := range byName {
		out = append(out, *a)
	}
	slices.SortFunc(out, func(a, b metrics.Autoscaler) int {
		return compareNames(a.Target.Namespace, b.Target.Namespace, a.Name, b.Name)
	})
	return out
}

func (t *ClusterState) includes(namespace string) bool {
	return len(t.namespaces) == 0 || slices.Contains(t.namespaces, namespace)
}
