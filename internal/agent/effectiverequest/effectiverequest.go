// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package effectiverequest computes which CPU and memory the kubelet grants to a pod and to each of its containers, with pod-level
// resources and during a resize, as the scheduler does.
package effectiverequest

import (
	corev1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"

	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/pkg/units"
)

// Resources are the ordinary CPU and memory of a pod or container; 0 for none.
type Resources struct {
	Request, Limit elasticrequest.Amounts
}

// options count a resize with the larger of its two ends, until the kubelet has completed it.
func options() podresource.PodResourcesOptions {
	return podresource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
		ExcludeOverhead: true,
	}
}

// Pod returns the resources of a pod without its overhead: those of the pod as a whole if they are set, else those of its containers.
func Pod(pod *corev1.Pod) Resources {
	return Resources{
		Request: amounts(podresource.PodRequests(pod, options())),
		Limit:   amounts(podresource.PodLimits(pod, options())),
	}
}

// Containers returns the resources of a pod's containers by name, init containers included. Any container may use what the pod requests
// beyond the sum of its containers, and none more than the pod's limit.
func Containers(pod *corev1.Pod) map[string]Resources {
	unclaimed := elasticrequest.Amounts{}
	limit := elasticrequest.Amounts{}
	if podresource.IsPodLevelResourcesSet(pod) {
		whole := Pod(pod)
		sum := amounts(podresource.AggregateContainerRequests(pod, options()))
		unclaimed.CPU = max(whole.Request.CPU-sum.CPU, 0)
		unclaimed.Memory = max(whole.Request.Memory-sum.Memory, 0)
		if _, ok := pod.Spec.Resources.Limits[corev1.ResourceCPU]; ok {
			limit.CPU = whole.Limit.CPU
		}
		if _, ok := pod.Spec.Resources.Limits[corev1.ResourceMemory]; ok {
			limit.Memory = whole.Limit.Memory
		}
	}

	out := make(map[string]Resources, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			// A pod of this container alone has the container's resources, which the package does not compute by themselves.
			alone := Pod(&corev1.Pod{Spec: corev1.PodSpec{Containers: list[i : i+1]}, Status: pod.Status})
			alone.Request.CPU += unclaimed.CPU
			alone.Request.Memory += unclaimed.Memory
			alone.Limit.CPU = lowerLimit(alone.Limit.CPU, limit.CPU)
			alone.Limit.Memory = lowerLimit(alone.Limit.Memory, limit.Memory)
			out[list[i].Name] = alone
		}
	}

	return out
}

// lowerLimit returns the lower of two limits, of which 0 is none.
func lowerLimit[N units.MilliCPU | units.Bytes](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}

	return a
}

func amounts(list corev1.ResourceList) elasticrequest.Amounts {
	return elasticrequest.Amounts{
		CPU:    units.MilliCPU(max(list.Cpu().MilliValue(), 0)),
		Memory: units.Bytes(max(list.Memory().Value(), 0)),
	}
}
