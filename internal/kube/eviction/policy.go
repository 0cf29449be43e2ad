// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// SafeToEvict is the annotation of cluster-autoscaler that allows or forbids evicting a pod.
	SafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// minCriticalPriority is the lowest priority of system-critical pods (scheduling.SystemCriticalPriority).
	minCriticalPriority = 2_000_000_000
)

// Annotations of static pods: the mark of the API server's mirror pod, and the source of the kubelet's pod.
const (
	annotationMirror = corev1.MirrorPodAnnotationKey
	annotationSource = "kubernetes.io/config.source"
)

// Policy decides which pods Crane evicts. Its zero value, which rebalancing uses, evicts only pods that a controller replaces elsewhere
// without loss of work, and never the only running pod of a workload. PodDisruptionBudgets hold in addition.
type Policy struct {
	// BarePods, JobPods and LastReplicas allow evicting pods without a controller, pods of Jobs, and the only running pod of a workload.
	BarePods, JobPods, LastReplicas bool
}

// BlockReason returns why a pod is never evicted; empty if it may be, as far as it is not the last replica.
func (p Policy) BlockReason(pod *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	source := pod.Annotations[annotationSource]
	switch {
	case pod.Annotations[annotationMirror] != "" || source != "" && source != "api":
		return "static pod"
	case owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node"):
		return "it belongs to its node (" + owner.Kind + ")"
	case pod.Spec.Priority != nil && *pod.Spec.Priority >= minCriticalPriority:
		return "its priority is critical to the system"
	case pod.Annotations[SafeToEvict] == "false":
		return SafeToEvict + " is false"
	case owner == nil && !p.BarePods:
		return "no controller would replace it"
	case owner != nil && owner.Kind == "Job" && !p.JobPods:
		return "it belongs to a Job, whose work would be lost"
	}
	return ""
}

// ReplicaBlockReason returns why a pod is not evicted by the number of running pods of its workload, including itself; empty if it may be.
func (p Policy) ReplicaBlockReason(running int) string {
	if running < 2 && !p.LastReplicas {
		return "it is the only running pod of its workload"
	}
	return ""
}
