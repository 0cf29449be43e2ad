// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/kube/eviction"
	"crane.io/crane/internal/kube/optout"
)

// deletionCost is the annotation by which Kubernetes selects among the pods of a ReplicaSet.
const deletionCost = "controller.kubernetes.io/pod-deletion-cost"

// blockReason returns why a pod must not be moved from any node; empty if it may. schedulers are the names of the
// profiles that run plugin Dynamic.
func blockReason(pod *corev1.Pod, schedulers []string, protected func(namespace string) bool, optedOut func(*corev1.Pod) bool, othersReady int) string {
	var policy eviction.Policy
	switch {
	case pod.DeletionTimestamp != nil:
		return "it is being deleted"
	case pod.Status.Phase != corev1.PodRunning:
		return "it does not run"
	case protected(pod.Namespace):
		return "its namespace is protected"
	case optedOut(pod):
		return optout.Reason
	}

	if why := cmp.Or(policy.BlockReason(pod), policy.ReplicaBlockReason(othersReady)); why != "" {
		return why
	}

	if !slices.Contains(schedulers, pod.Spec.SchedulerName) {
		// Any other scheduler reads requests only, and may place its replacement on the same node.
		return "its scheduler " + pod.Spec.SchedulerName + " does not read load (--rebalance-schedulers)"
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
		case v.EmptyDir != nil && !strings.EqualFold(pod.Annotations[eviction.SafeToEvict], "true"):
			return "it has an emptyDir, and " + eviction.SafeToEvict + " is not true"
		}
	}

	return ""
}
