// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hpametrics

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"
)

// Request returns what a pod requests of a resource, in cores or bytes, as the HPA controller counts it: the request of the pod level
// where the pod has one, else the sum of the containers that run for the life of the pod. With a container it returns the request of
// that container alone. A container without a request is an error.
func Request(pod *corev1.Pod, name corev1.ResourceName, container string) (float64, error) {
	if container == "" && podresource.IsPodLevelRequestsSet(pod) {
		q, ok := podresource.PodRequests(pod, podresource.PodResourcesOptions{})[name]
		if !ok {
			return 0, fmt.Errorf("the pod requests no %s, which averageUtilization refers to", name)
		}

		return q.AsApproximateFloat64(), nil
	}

	total := 0.0
	found := false
	for _, c := range longRunningContainers(&pod.Spec) {
		if container != "" && c.Name != container {
			continue
		}

		q, ok := c.Resources.Requests[name]
		if !ok {
			return 0, fmt.Errorf("container %s requests no %s, which averageUtilization refers to", c.Name, name)
		}

		total += q.AsApproximateFloat64()
		found = true
	}

	if !found {
		return 0, fmt.Errorf("the request for %s is unknown: there is no container %s", name, container)
	}

	return total, nil
}

// longRunningContainers returns the containers and the sidecars of a pod.
func longRunningContainers(spec *corev1.PodSpec) []*corev1.Container {
	var out []*corev1.Container
	for i := range spec.InitContainers {
		if p := spec.InitContainers[i].RestartPolicy; p != nil && *p == corev1.ContainerRestartPolicyAlways {
			out = append(out, &spec.InitContainers[i])
		}
	}

	for i := range spec.Containers {
		out = append(out, &spec.Containers[i])
	}

	return out
}
