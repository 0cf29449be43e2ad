// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package effectiveresources

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
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

// WithChanged returns a spec with the amounts of CPU and memory that all pods have instead of its own: another webhook changes what the template
// declares. The pods must be of the template. If one was resized since its creation, nothing is known of what the next one gets.
func WithChanged(spec *corev1.PodSpec, pods []corev1.Pod) *corev1.PodSpec {
	if len(pods) == 0 || slices.ContainsFunc(pods, func(p corev1.Pod) bool { return resized(&p) }) {
		return spec
	}

	out := spec.DeepCopy()
	for _, c := range containersOf(out) {
		for _, part := range []struct {
			declared corev1.ResourceList
			of       func(*corev1.Container) corev1.ResourceList
		}{
			{c.Resources.Requests, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Requests }},
			{c.Resources.Limits, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Limits }},
		} {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if _, declared := part.declared[name]; !declared {
					continue
				}

				if q, ok := commonAmount(pods, c.Name, name, part.of); ok {
					part.declared[name] = q
				}
			}
		}
	}

	return out
}

// commonAmount returns the amount of a container that all pods have; ok is false if they differ, or if one lacks it.
func commonAmount(
	pods []corev1.Pod, container string, name corev1.ResourceName, amountsOf func(*corev1.Container) corev1.ResourceList,
) (common apiresource.Quantity, ok bool) {
	for i := range pods {
		containers := containersOf(&pods[i].Spec)
		j := slices.IndexFunc(containers, func(c *corev1.Container) bool { return c.Name == container })
		if j < 0 {
			return common, false
		}

		q, found := amountsOf(containers[j])[name]
		if !found || i > 0 && q.Cmp(common) != 0 {
			return common, false
		}

		common = q.DeepCopy()
	}

	return common, len(pods) > 0
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
