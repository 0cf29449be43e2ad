// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/units"
)

// Cluster has the nodes and pods from which the cost of workloads is computed.
type Cluster struct {
	Nodes []cost.Node
	// Pods are the pods of the requested namespaces that have not terminated.
	Pods []Pod
}

// Pod is a pod, scheduled or not.
type Pod struct {
	// Name is the name of the pod, Owner the workload that it belongs to.
	Name  string
	Owner Ref
	// Node is empty while the pod is not scheduled.
	Node string
	// Requests are the effective requests of the pod as the scheduler computes them: its containers, or an init container with a
	// larger request, and its overhead.
	Requests cost.Amounts
}

// Cluster lists all nodes, and the pods of some namespaces (empty: all), page by page.
func (l *Lister) Cluster(ctx context.Context, namespaces []string) (Cluster, error) {
	var out Cluster
	err := l.EachNode(ctx, func(n *corev1.Node) error {
		out.Nodes = append(out.Nodes, cost.Node{Name: n.Name, Labels: n.Labels, Size: AmountsOf(n.Status.Capacity)})
		return nil
	})
	if err != nil {
		return Cluster{}, err
	}

	err = l.EachPod(ctx, namespaces, func(_ *corev1.Pod, pod Pod, _ bool) error {
		pod.Owner = pod.Owner.RunGroup()
		out.Pods = append(out.Pods, pod)
		return nil
	})
	if err != nil {
		return Cluster{}, err
	}

	return out, nil
}

// gpuResources are the names under which device plugins offer whole GPUs. Slices of one (MIG profiles, shared ones) have other
// names and are not priced.
func gpuResources() []corev1.ResourceName {
	return []corev1.ResourceName{"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"}
}

// AmountsOf returns the priced resources of a list. Slices of GPUs are left out.
func AmountsOf(list corev1.ResourceList) cost.Amounts {
	out := cost.Amounts{CPU: units.MilliCPU(list.Cpu().MilliValue()), Memory: units.Bytes(list.Memory().Value())}
	for _, name := range gpuResources() {
		if q, ok := list[name]; ok {
			out.GPU += q.Value()
		}
	}

	return out
}

// Placement is the number of pods of each workload, or group of runs, by node; unscheduled pods are left out. The keys have no version.
type Placement map[Ref]map[string]int

// Placement returns the nodes on which the pods of the cluster's workloads run.
func (c Cluster) Placement() Placement {
	out := Placement{}
	for _, p := range c.Pods {
		if p.Node == "" {
			continue
		}

		key := withoutVersion(p.Owner.RunGroup())
		if out[key] == nil {
			out[key] = map[string]int{}
		}

		out[key][p.Node]++
	}

	return out
}

// PodsByNode returns the number of pods that a workload, or all runs of its template, have on each node.
func (p Placement) PodsByNode(ref Ref) map[string]int { return p[withoutVersion(ref.RunGroup())] }

// CostPods returns the pods as package cost models them, with their usage if that is known: use is called with the namespace and
// the name of a pod.
func (c Cluster) CostPods(use func(namespace, pod string) (cost.Amounts, bool)) []cost.Pod {
	out := make([]cost.Pod, 0, len(c.Pods))
	for _, p := range c.Pods {
		payer := cost.Pod{
			Workload: cost.Workload{Namespace: p.Owner.Namespace, Kind: p.Owner.Kind, Name: p.Owner.Name},
			Node:     p.Node, Request: p.Requests,
		}

		if usage, ok := use(p.Owner.Namespace, p.Name); ok {
			payer.Usage = &usage
		}
		out = append(out, payer)
	}

	return slices.Clip(out)
}
