// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"testing"
	"time"

	"crane.io/crane/internal/testbed/simnode/kubelet"
)

// TestNodeBeforeItsFirstMeasurement checks that the counters of a node whose kubelet has not measured yet start at zero.
func TestNodeBeforeItsFirstMeasurement(t *testing.T) {
	e := New(nil)
	at := time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
	state := kubelet.NodeState{Spec: kubelet.NodeSpec{Name: "n"}}
	for i, want := range []float64{0, 15} {
		if got := e.updateNodeCounters(state, at.Add(time.Duration(i)*15*time.Second)); got.elapsed != want {
			t.Errorf("after %d samples: %g s have elapsed, want %g", i+1, got.elapsed, want)
		}
		state.StartedAt = at.Add(time.Second)
	}
}
