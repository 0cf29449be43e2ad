// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresource "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EachPod visits the pods of some namespaces (empty: all) that have not terminated, page by page, each with its entry for a
// Cluster. mirror reports static pods, which are workloads of their own. visit must not keep the object.
func (l *Lister) EachPod(ctx context.Context, namespaces []string, visit func(object *corev1.Pod, pod Pod, mirror bool) error) error {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}

	for _, ns := range namespaces {
		owners, err := l.owners(ctx, ns)
		if err != nil {
			return err
		}

		err = l.each(ctx, Query{Kind: podKind(), Namespace: ns}, func(o client.Object) error {
			pod, ok := o.(*corev1.Pod)
			if !ok || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
				return nil
			}

			owner, owned := owners.Of(pod)
			if !owned { // A static pod gets no recommendation but has a cost.
				owner = Ref{
					Namespace:  pod.Namespace,
					APIVersion: "v1",
					Kind:       "Pod",
					Name:       pod.Name,
				}
			}

			return visit(pod, Pod{
				Name:     pod.Name,
				Owner:    owner,
				Node:     pod.Spec.NodeName,
				Requests: AmountsOf(podresource.PodRequests(pod, podresource.PodResourcesOptions{})),
			}, !owned)
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// EachNode visits all nodes, page by page.
func (l *Lister) EachNode(ctx context.Context, visit func(*corev1.Node) error) error {
	return l.each(ctx, Query{Kind: corev1.SchemeGroupVersion.WithKind("Node")}, func(o client.Object) error {
		if n, ok := o.(*corev1.Node); ok {
			return visit(n)
		}

		return nil
	})
}

// IsGPU reports whether device plugins offer GPUs under a name, whole ones or NVIDIA's slices.
func IsGPU(name corev1.ResourceName) bool {
	return slices.Contains(gpuResources(), name) || strings.HasPrefix(string(name), "nvidia.com/mig-")
}

// UtilizationTarget is a share of the request at which an autoscaler scales.
type UtilizationTarget struct {
	Resource corev1.ResourceName
	// Container is empty if the requests of the whole pod count.
	Container string
	Percent   int32
}

// UtilizationTargets returns the targets of an autoscaler for CPU and memory, in its order.
func (a Autoscaler) UtilizationTargets() []UtilizationTarget {
	var out []UtilizationTarget
	for _, m := range a.Metrics {
		var t UtilizationTarget
		var target autoscalingv2.MetricTarget
		switch {
		case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil:
			t.Resource, target = m.Resource.Name, m.Resource.Target
		case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil:
			t.Resource = m.ContainerResource.Name
			t.Container = m.ContainerResource.Container
			target = m.ContainerResource.Target
		}

		if target.AverageUtilization == nil || *target.AverageUtilization <= 0 || t.Resource != corev1.ResourceCPU && t.Resource != corev1.ResourceMemory {
			continue
		}

		t.Percent = *target.AverageUtilization
		out = append(out, t)
	}

	return out
}

// UtilizationAutoscaler returns the autoscaler that scales a workload by the utilization of its requests, and its targets; there
// are none without one. Several autoscalers of one workload count as one that Crane does not own.
func (c Constraints) UtilizationAutoscaler(ref Ref) (Autoscaler, []UtilizationTarget) {
	var out Autoscaler
	var all []UtilizationTarget
	for i, a := range c.Autoscalers(ref) {
		if targets := a.UtilizationTargets(); len(targets) > 0 {
			all = append(all, targets...)
			out = a

			if i > 0 {
				out.Owner = ""
			}
		}
	}

	return out, all
}
