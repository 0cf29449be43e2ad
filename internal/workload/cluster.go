// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresource "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/series"
)

// Cluster is what runs where: what is needed to tell what workloads cost.
type Cluster struct {
	Nodes []cost.Node
	// Pods are those that have not ended, of the namespaces that were asked for.
	Pods []Pod
}

// Pod is a pod on a node, or on its way to one.
type Pod struct {
	// Name is the pod's own, Owner the workload that it belongs to.
	Name  string
	Owner Ref
	// Node is empty while the pod is not scheduled.
	Node string
	// Requests is what the scheduler counts for the pod: its containers, or an init container that asks for more, and
	// its overhead.
	Requests cost.Amounts
}

// Cluster lists all nodes, and the pods of some namespaces (empty: all), page by page.
func (l *Lister) Cluster(ctx context.Context, namespaces []string) (Cluster, error) {
	var out Cluster
	nodes := corev1.SchemeGroupVersion.WithKind("Node")
	if err := l.each(ctx, Query{Kind: nodes}, func(o client.Object) error {
		if n, ok := o.(*corev1.Node); ok {
			out.Nodes = append(out.Nodes, cost.Node{Name: n.Name, Labels: n.Labels, Size: amounts(n.Status.Capacity)})
		}
		return nil
	}); err != nil {
		return Cluster{}, err
	}
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, ns := range namespaces {
		pods, err := l.pods(ctx, ns)
		if err != nil {
			return Cluster{}, err
		}
		out.Pods = append(out.Pods, pods...)
	}
	return out, nil
}

func (l *Lister) pods(ctx context.Context, namespace string) ([]Pod, error) {
	owners, err := l.owners(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var out []Pod
	err = l.each(ctx, Query{Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: namespace}, func(o client.Object) error {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			return nil
		}
		owner, ok := owners.Of(pod)
		if !ok { // A static pod is not recommended for, and costs all the same.
			owner = Ref{Namespace: pod.Namespace, APIVersion: "v1", Kind: "Pod", Name: pod.Name}
		}
		out = append(out, Pod{
			Name: pod.Name, Owner: owner, Node: pod.Spec.NodeName,
			Requests: amounts(podresource.PodRequests(pod, podresource.PodResourcesOptions{})),
		})
		return nil
	})
	return out, err
}

// gpuResources are the names under which device plugins offer whole GPUs. Slices of one (MIG profiles, shared ones)
// have other names and are not priced.
func gpuResources() []corev1.ResourceName {
	return []corev1.ResourceName{"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"}
}

func amounts(list corev1.ResourceList) cost.Amounts {
	out := cost.Amounts{CPU: series.MilliCPU(list.Cpu().MilliValue()), Memory: series.Bytes(list.Memory().Value())}
	for _, name := range gpuResources() {
		if q, ok := list[name]; ok {
			out.GPU += q.Value()
		}
	}
	return out
}

// Placement counts the pods of each workload by node; pods that are on none are left out. The keys have no version.
type Placement map[Ref]map[string]int

// Placement tells where the pods of the cluster's workloads run.
func (c Cluster) Placement() Placement {
	out := Placement{}
	for _, p := range c.Pods {
		if p.Node == "" {
			continue
		}
		key := anyVersion(p.Owner)
		if out[key] == nil {
			out[key] = map[string]int{}
		}
		out[key][p.Node]++
	}
	return out
}

// Of returns the number of pods that a workload has on each node.
func (p Placement) Of(ref Ref) map[string]int { return p[anyVersion(ref)] }

// Payers are the pods as package cost sees them, with what each uses where that is known: use is called with the
// namespace and the name of a pod.
func (c Cluster) Payers(use func(namespace, pod string) (cost.Amounts, bool)) []cost.Pod {
	out := make([]cost.Pod, 0, len(c.Pods))
	for _, p := range c.Pods {
		payer := cost.Pod{
			Workload: cost.Workload{Namespace: p.Owner.Namespace, Kind: p.Owner.Kind, Name: p.Owner.Name},
			Node:     p.Node, Request: p.Requests,
		}
		if used, known := use(p.Owner.Namespace, p.Name); known {
			payer.Use = &used
		}
		out = append(out, payer)
	}
	return slices.Clip(out)
}
