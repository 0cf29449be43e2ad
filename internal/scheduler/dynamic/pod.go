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

// systemCritical is the least priority of system-cluster-critical and system-node-critical.
const systemCritical = 2_000_000_000

// asks is what the pod asks for while it lives: its containers and sidecars, and the overhead of its runtime. Init
// containers end before it lives. What is set for the pod as a whole counts instead of what its containers say.
func asks(pod *corev1.Pod) nodeload.PodRequest {
	var ask nodeload.PodRequest
	bounded := nodeload.Amount{CPU: 1, Memory: 1} // 1 while every container has a limit.
	add := func(r *corev1.ResourceRequirements) {
		request, limit := amount(r.Requests), amount(r.Limits)
		ask.Request.CPU += orLimit(request.CPU, limit.CPU)
		ask.Request.Memory += orLimit(request.Memory, limit.Memory)
		ask.Limit.CPU += limit.CPU
		ask.Limit.Memory += limit.Memory
		bounded.CPU *= min(limit.CPU, 1)
		bounded.Memory *= min(limit.Memory, 1)
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i].Resources)
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(&c.Resources)
		}
	}
	// A pod is bounded only if all of its containers are.
	ask.Limit.CPU *= bounded.CPU
	ask.Limit.Memory *= bounded.Memory
	if whole := pod.Spec.Resources; whole != nil {
		override(&ask.Request, whole.Requests)
		override(&ask.Limit, whole.Limits)
	}
	overhead := amount(pod.Spec.Overhead)
	ask.Request.CPU += overhead.CPU
	ask.Request.Memory += overhead.Memory
	if ask.Limit.CPU > 0 {
		ask.Limit.CPU += overhead.CPU
	}
	if ask.Limit.Memory > 0 {
		ask.Limit.Memory += overhead.Memory
	}
	return ask
}

// orLimit is what the API server does: a container with a limit and no request requests the limit.
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
	whole := amount(list)
	set(corev1.ResourceCPU, func(resource.Quantity) { a.CPU = whole.CPU })
	set(corev1.ResourceMemory, func(resource.Quantity) { a.Memory = whole.Memory })
}

// isDaemon tells that the pod belongs to a DaemonSet: its node is given, and load is no reason against it.
func isDaemon(pod *corev1.Pod) bool {
	for i := range pod.OwnerReferences {
		if pod.OwnerReferences[i].Kind == "DaemonSet" {
			return true
		}
	}
	return false
}

// isCritical tells that the cluster cannot do without the pod.
func isCritical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}

// runningSince is when the last of the pod's containers started; zero while one of them has not.
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

// ended tells that the pod uses nothing any more.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// startOf is when a pod started that may have ended; zero where it never ran.
func startOf(pod *corev1.Pod) time.Time {
	if since := runningSince(pod); !since.IsZero() {
		return since
	}
	if !ended(pod) || pod.Status.StartTime == nil {
		return time.Time{}
	}
	return pod.Status.StartTime.Time
}

// endOf is when the last of the pod's containers ended, if that is known, else now.
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
