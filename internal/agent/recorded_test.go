// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestRecordedHandover checks that this agent takes over the changes of the agent of commit 2fe0246b, by the marker which that agent wrote.
func TestRecordedHandover(t *testing.T) {
	content, err := os.ReadFile("testdata/handover-v1-2fe0246b.json")
	if err != nil {
		t.Fatal(err)
	}

	m := restartFixture(t, func(*appsv1.DaemonSet, *corev1.Namespace, *corev1.Pod) {})
	deadline := time.Date(2026, 1, 5, 0, 2, 0, 0, time.UTC)

	m.clock = clocktesting.NewFakeClock(deadline.Add(-time.Minute))
	if err := os.WriteFile(m.handoverPath(), content, 0o600); err != nil {
		t.Fatal(err)
	}

	r := m.readHandover()
	if !r.inherited || !r.leftTaint() || r.newer || !r.inheritedUntil().Equal(deadline) {
		t.Errorf("readHandover: inherited %t until %s, taint %t, newer %t; want both taken over until %s", r.inherited, r.inheritedUntil(), r.leftTaint(), r.newer, deadline)
	}
	if m.leftHandover() {
		t.Error("the marker is still there, want it removed")
	}
}
