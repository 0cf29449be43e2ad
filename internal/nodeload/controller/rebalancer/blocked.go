// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// safeToEvict is the annotation of cluster-autoscaler that allows or forbids evicting a pod.
	safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// deletionCost is the annotation by which Kubernetes selects among the pods of a ReplicaSet.
	deletionCost = "controller.kubernetes.io/pod-deletion-cost"
	// systemPriority is the lowest priority of system-critical pods.
	systemPriority = 2_000_000_000
)

// blockReason returns why a pod must not be moved from any node; empty if it may.
func blockReason(pod *corev1.Pod, protected func(namespace string) bool, siblings int) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	switch {
	case pod.DeletionTimestamp != nil:
		return "it is going already"
	case pod.Status.Phase != corev1.PodRunning:
		return "it does not run"
	case owner == nil:
		return "no controller would replace it"
	case owner.Kind == "DaemonSet" || owner.Kind == "Node":
		return "it belongs to its node (" + owner.Kind + ")"
	case owner.Kind == "Job":
		return "it belongs to a Job, whose work would be lost"
	case siblings < 2:
		return "it is the only running pod of its workload"
	case protected(pod.Namespace):
		return "its namespace is protected"
	case pod.Spec.Priority != nil && *pod.Spec.Priority >= systemPriority:
		return "its priority is critical to the system"
	case pod.Annotations[safeToEvict] == "false":
		return safeToEvict + " is false"
	}
	if why := hardToPlace(pod); why != "" {
		return why
	}
	return localData(pod)
}

// hardToPlace names a constraint of the pod that this package does not evaluate, so it is unknown whether another
// node satisfies it.
func hardToPlace(pod *corev1.Pod) string {
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		return "it needs other pods near it (pod affinity)"
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		if pod.Spec.TopologySpreadConstraints[i].WhenUnsatisfiable == corev1.DoNotSchedule {
			return "it has to be spread (topologySpreadConstraints)"
		}
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		return "it has resource claims"
	}
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			if port.HostPort != 0 {
				return "it has ports of its node"
			}
		}
	}
	return ""
}

// localData names data that would be lost or is tied to the node.
func localData(pod *corev1.Pod) string {
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil || v.Ephemeral != nil:
			return "it has a persistent volume"
		case v.HostPath != nil:
			return "it uses files of its node"
		case v.EmptyDir != nil && !strings.EqualFold(pod.Annotations[safeToEvict], "true"):
			return "it has an emptyDir, and " + safeToEvict + " is not true"
		}
	}
	return ""
}
