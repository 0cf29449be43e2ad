// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hpametrics

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// Request returns what a pod requests of a resource as the HPA controller counts it: the request of the pod level
// where the pod has one, else the sum of the containers that run for the life of the pod. With a container it returns the request of
// that container alone. A container without a request is an error.
func Request(pod *corev1.Pod, name corev1.ResourceName, container string) (resource.Quantity, error) {
	if container == "" && podresource.IsPodLevelRequestsSet(pod) {
		q, ok := podresource.PodRequests(pod, podresource.PodResourcesOptions{})[name]
		if !ok {
			return resource.Quantity{}, fmt.Errorf("the pod requests no %s, which averageUtilization refers to", name)
		}

		return q, nil
	}

	var total resource.Quantity
	found := false
	for _, c := range longRunningContainers(&pod.Spec) {
		if container != "" && c.Name != container {
			continue
		}

		q, ok := c.Resources.Requests[name]
		if !ok {
			return resource.Quantity{}, fmt.Errorf("container %s requests no %s, which averageUtilization refers to", c.Name, name)
		}

		total.Add(q)
		found = true
	}

	if !found {
		return resource.Quantity{}, fmt.Errorf("the request for %s is unknown: there is no container %s", name, container)
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
