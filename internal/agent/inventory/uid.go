// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of static pods: the kubelet's UID, which cgroups use, and the mark of the API server's mirror pod.
const (
	annotationHash   = "kubernetes.io/config.hash"
	annotationMirror = corev1.MirrorPodAnnotationKey
)

// UIDs returns the UIDs used in the names of pods' cgroups, in the order of a node's pods: for static pods the kubelet's and not the mirror pod's.
//
// Users may write the annotations of mirror pods too. So a pod gets the UID of no other pod, and a UID that several pods claim belongs to none of
// them: the static pod is then unknown and left alone.
func UIDs(pods []*corev1.Pod) []string {
	used := make(map[string]int, len(pods))
	for _, pod := range pods {
		used[string(pod.UID)]++
		if hash := staticUID(pod); hash != "" {
			used[hash]++
		}
	}

	out := make([]string, len(pods))
	for i, pod := range pods {
		out[i] = string(pod.UID)
		if hash := staticUID(pod); hash != "" && used[hash] == 1 {
			out[i] = hash
		}
	}

	return out
}

// staticUID returns the kubelet's UID of a static pod by its mirror pod, whose controller is the Node; empty for other pods.
func staticUID(pod *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	if pod.Annotations[annotationMirror] == "" || owner == nil || owner.Kind != "Node" || owner.Name != pod.Spec.NodeName {
		return ""
	}

	return pod.Annotations[annotationHash]
}
