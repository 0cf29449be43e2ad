// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/pkg/nodeload"
)

// TestSiblingNotReady checks that the only ready pod of a workload is not moved, although a sibling that is not ready is in phase Running.
func TestSiblingNotReady(t *testing.T) {
	for status, wantBlocked := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: false, corev1.ConditionFalse: true} {
		s := &snapshot{
			nodes: make([]corev1.Node, 2), used: []corev1.ResourceList{{}, {}}, pods: make([]int64, 2), arriving: make([]nodeload.Arrivals, 2),
			requested: make([]nodeload.Amount, 2), onHot: map[int][]*corev1.Pod{}, ready: map[string]int{},
		}
		ready := func(p *corev1.Pod, status corev1.ConditionStatus) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
		}
		healthy := newPod(func(p *corev1.Pod) { ready(p, corev1.ConditionTrue) })
		sibling := newPod(func(p *corev1.Pod) {
			p.Name, p.UID = "web-2", "web-2"
			ready(p, status)
		})

		s.add(healthy, 0, true, time.Minute, time.Now())
		s.add(sibling, 1, false, time.Minute, time.Now())
		var none optout.Set
		why := blockReason(healthy, DefaultSettings().Schedulers, func(string) bool { return false }, none.Excludes, s.othersReady(healthy))
		if (why != "") != wantBlocked {
			t.Errorf("blockReason with a sibling that is ready: %s = %q, want a reason: %t", status, why, wantBlocked)
		}
	}
}
