// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package effectiveresources

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WithObserved returns the spec of NewPod with what it leaves open, as the newest of the pods says: the requests and limits of
// CPU and memory, and containers that were injected. A pod that was resized since its creation counts only if all were: amounts cannot be
// removed in place, so it has had those that it has, if not their values.
func WithObserved(spec *corev1.PodSpec, pods []corev1.Pod) *corev1.PodSpec {
	newest := newestPod(pods)
	if newest == nil {
		return spec
	}

	out := spec.DeepCopy()
	out.InitContainers = withObserved(out.InitContainers, newest.Spec.InitContainers)
	out.Containers = withObserved(out.Containers, newest.Spec.Containers)
	if out.Resources == nil {
		out.Resources = newest.Spec.Resources.DeepCopy()
	}

	if out.Overhead == nil { // It comes from the runtime class.
		out.Overhead = newest.Spec.Overhead.DeepCopy()
	}

	return out
}

// withObserved returns containers with what those of a pod add. Injected containers follow.
func withObserved(containers, observed []corev1.Container) []corev1.Container {
	for i := range observed {
		j := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == observed[i].Name })
		if j < 0 {
			containers = append(containers, *observed[i].DeepCopy())
			continue
		}

		to := &containers[j].Resources
		from := &observed[i].Resources
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := from.Limits[name]; ok {
				to.Limits = withMissing(to.Limits, corev1.ResourceList{name: q})
			}
			if q, ok := from.Requests[name]; ok {
				to.Requests = withMissing(to.Requests, corev1.ResourceList{name: q})
			}
		}
	}

	return containers
}

// newestPod returns the newest pod, one that was not resized before one that was; nil for none.
func newestPod(pods []corev1.Pod) *corev1.Pod {
	var newest *corev1.Pod
	for i := range pods {
		p := &pods[i]
		switch {
		case newest == nil || resized(newest) && !resized(p):
			newest = p
		case resized(newest) == resized(p) && newest.CreationTimestamp.Before(&p.CreationTimestamp):
			newest = p
		}
	}

	return newest
}

// resized reports whether the resources of a pod were changed in place since its creation, by Crane or by another client.
func resized(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Subresource == "resize" })
}
