// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package effectiveresources computes the requests and limits that the pods of a workload have, which its pod template alone does not
// say. From the first source that has an amount, in this order:
//
//  1. The template.
//  2. Defaulting by the API server: a limit without a request is also the request; likewise the limits of the pod level.
//  3. The defaults of LimitRanges, which are set at the creation of a pod and so fill only what the first two leave open.
//  4. The newest pod, if possible one that was not resized since its creation: other webhooks add requests, and whole containers.
//
// A running pod comes last because it may have a size that Crane, a person or a VerticalPodAutoscaler set, whereas the first three are
// what the next pod gets.
package effectiveresources

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"
)

// NewPod returns the spec of the next pod of a template in a namespace with these LimitRanges: a copy of the template with the requests
// and limits that the API server adds. Where several LimitRanges have a default for one resource, the first of them counts; the API
// server takes any.
func NewPod(template *corev1.PodSpec, ranges []corev1.LimitRange) *corev1.PodSpec {
	spec := template.DeepCopy()
	for _, c := range containersOf(spec) {
		defaultRequests(&c.Resources)
	}

	defaultPodLevel(spec)
	for i := range ranges {
		defaults := containerDefaults(&ranges[i])
		for _, c := range containersOf(spec) {
			c.Resources.Limits = withMissing(c.Resources.Limits, defaults.Limits)
			c.Resources.Requests = withMissing(c.Resources.Requests, defaults.Requests)
		}
	}

	return spec
}

// containersOf returns the init containers and the containers of a spec, to be changed.
func containersOf(spec *corev1.PodSpec) []*corev1.Container {
	var out []*corev1.Container
	for i := range spec.InitContainers {
		out = append(out, &spec.InitContainers[i])
	}

	for i := range spec.Containers {
		out = append(out, &spec.Containers[i])
	}

	return out
}

// defaultRequests sets the requests that are missing beside limits. A request of 0 is not missing.
func defaultRequests(r *corev1.ResourceRequirements) {
	r.Requests = withMissing(r.Requests, r.Limits)
}

// withMissing returns a list with the amounts of another that it lacks.
func withMissing(list, other corev1.ResourceList) corev1.ResourceList {
	if len(other) == 0 {
		return list
	}

	out := maps.Clone(other)
	maps.Copy(out, list)
	return out
}

// defaultPodLevel sets the resources of the pod level that are missing beside others: limits of huge pages from the containers, and
// beside limits the requests, from the containers as far as they request the resource, else from the limits.
func defaultPodLevel(spec *corev1.PodSpec) {
	level := spec.Resources
	if level == nil || len(level.Limits)+len(level.Requests) == 0 {
		return
	}

	pod := &corev1.Pod{Spec: *spec}
	for name, q := range podresource.AggregateContainerLimits(pod, podresource.PodResourcesOptions{}) {
		_, requested := level.Requests[name]
		if hugePages(name) && !requested {
			level.Limits = withMissing(level.Limits, corev1.ResourceList{name: q})
		}
	}

	if len(level.Limits) == 0 {
		return
	}

	for name, q := range podresource.AggregateContainerRequests(pod, podresource.PodResourcesOptions{}) {
		if podresource.IsSupportedPodLevelResource(name) && !hugePages(name) { // Huge pages cannot be overcommitted.
			level.Requests = withMissing(level.Requests, corev1.ResourceList{name: q})
		}
	}

	for name, q := range level.Limits {
		if podresource.IsSupportedPodLevelResource(name) {
			level.Requests = withMissing(level.Requests, corev1.ResourceList{name: q})
		}
	}
}

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// containerDefaults returns the defaults of a LimitRange for containers. The last of several items counts, as in the API server.
func containerDefaults(r *corev1.LimitRange) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{}
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		if item.Type != corev1.LimitTypeContainer {
			continue
		}

		// The API server stores a LimitRange with these defaults, so this matters only for one that was not stored yet.
		limits := withMissing(item.Default, item.Max)
		requests := withMissing(withMissing(item.DefaultRequest, limits), item.Min)

		out.Limits = withMissing(limits, out.Limits)
		out.Requests = withMissing(requests, out.Requests)
	}

	return out
}
