// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/pkg/nodeload"
)

// systemCritical is the lowest priority of system-cluster-critical and system-node-critical.
const systemCritical = 2_000_000_000

// podRequest returns the requests of the running pod: its containers, sidecars and overhead. Init containers are
// excluded, because they end before. Requests of the pod as a whole replace those of its containers.
func podRequest(pod *corev1.Pod) nodeload.PodRequest {
	var result nodeload.PodRequest
	limited := nodeload.Amount{CPU: 1, Memory: 1} // 1 while every container has a limit.
	add := func(r *corev1.ResourceRequirements) {
		request := amount(r.Requests)
		limit := amount(r.Limits)
		result.Request.CPU += orLimit(request.CPU, limit.CPU)
		result.Request.Memory += orLimit(request.Memory, limit.Memory)
		result.Limit.CPU += limit.CPU
		result.Limit.Memory += limit.Memory
		limited.CPU *= min(limit.CPU, 1)
		limited.Memory *= min(limit.Memory, 1)
	}

	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i].Resources)
	}

	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(&c.Resources)
		}
	}

	// A pod has a limit only if all of its containers have one.
	result.Limit.CPU *= limited.CPU
	result.Limit.Memory *= limited.Memory
	if podLevel := pod.Spec.Resources; podLevel != nil {
		override(&result.Request, podLevel.Requests)
		override(&result.Limit, podLevel.Limits)
	}

	overhead := amount(pod.Spec.Overhead)
	result.Request.CPU += overhead.CPU
	result.Request.Memory += overhead.Memory
	if result.Limit.CPU > 0 {
		result.Limit.CPU += overhead.CPU
	}
	if result.Limit.Memory > 0 {
		result.Limit.Memory += overhead.Memory
	}

	return result
}

// orLimit returns the limit if there is no request, as the API server does.
func orLimit[T ~int64](request, limit T) T {
	if request == 0 {
		return limit
	}

	return request
}

func override(a *nodeload.Amount, list corev1.ResourceList) {
	set := func(name corev1.ResourceName, use func(resource.Quantity)) {
		if q, ok := list[name]; ok {
			use(q)
		}
	}

	total := amount(list)
	set(corev1.ResourceCPU, func(resource.Quantity) { a.CPU = total.CPU })
	set(corev1.ResourceMemory, func(resource.Quantity) { a.Memory = total.Memory })
}

// isDaemon reports whether the pod belongs to a DaemonSet: its node is given, so load must not exclude it.
func isDaemon(pod *corev1.Pod) bool {
	for i := range pod.OwnerReferences {
		if pod.OwnerReferences[i].Kind == "DaemonSet" {
			return true
		}
	}

	return false
}

// isCritical reports whether the pod has a system-critical priority.
func isCritical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}

// runningSince returns when the last of the pod's containers started; zero while one has not.
func runningSince(pod *corev1.Pod) time.Time {
	if pod.Status.Phase != corev1.PodRunning {
		return time.Time{}
	}

	var since metav1.Time
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i].State
		if s.Running != nil && since.Before(&s.Running.StartedAt) {
			since = s.Running.StartedAt
		}
	}

	if since.IsZero() && pod.Status.StartTime != nil {
		since = *pod.Status.StartTime
	}

	return since.Time
}

// ended reports whether the pod has terminated.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// startOf returns when a possibly ended pod started; zero if it never ran.
func startOf(pod *corev1.Pod) time.Time {
	if since := runningSince(pod); !since.IsZero() {
		return since
	}

	if !ended(pod) || pod.Status.StartTime == nil {
		return time.Time{}
	}

	return pod.Status.StartTime.Time
}

// endOf returns when the last of the pod's containers ended, else now.
func endOf(pod *corev1.Pod, now time.Time) time.Time {
	var last time.Time
	for i := range pod.Status.ContainerStatuses {
		done := pod.Status.ContainerStatuses[i].State.Terminated
		if done == nil {
			return now
		}

		if done.FinishedAt.After(last) {
			last = done.FinishedAt.Time
		}
	}

	if last.IsZero() || last.After(now) {
		return now
	}

	return last
}
