// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"slices"
	"strings"

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
				owner = Ref{Namespace: pod.Namespace, APIVersion: "v1", Kind: "Pod", Name: pod.Name}
			}
			return visit(pod, Pod{
				Name: pod.Name, Owner: owner, Node: pod.Spec.NodeName,
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
