// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// NodeRejectReason returns why a node accepts no pod like this one, whatever its free capacity; empty if it does. It checks
// readiness, taints, selectors and node affinity, as kube-scheduler's filters do.
func NodeRejectReason(node *corev1.Node, pod *corev1.Pod) string {
	if node.Spec.Unschedulable {
		return "cordoned"
	}
	if !NodeReady(node) {
		return "not ready"
	}
	if _, found := scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, blocksScheduling, false); found {
		return "with a taint that it does not tolerate"
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		return "that its node selector or affinity leaves out"
	}
	return ""
}

func blocksScheduling(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

// NodeReady reports whether the condition Ready of a node is true.
func NodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
