// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import "testing"

// TestThrottleRecords_Missed checks that the record of a container missing for some observations is kept, as when an API server lists its pod late, and
// dropped later.
func TestThrottleRecords_Missed(t *testing.T) {
	var b throttleRecords[Quota]
	b.record(throttleRecord[Quota]{ContainerID: "c", Original: Unlimited, Set: 500})
	seen := &Observation{Pods: []Pod{{UID: "p", Containers: []Container{{ID: "c", Quota: 500}}}}}
	look := func(o *Observation, times int) {
		for range times {
			b.reconcile(o, cpuLimits())
		}
	}

	look(&Observation{}, forgetAfter)
	look(seen, 1)
	look(&Observation{}, forgetAfter)

	if !b.contains("c") {
		t.Error("the record is dropped before forgetAfter observations in a row, want it kept")
	}

	look(&Observation{}, 1)

	if b.contains("c") {
		t.Error("the record is kept after forgetAfter observations, want it dropped")
	}
}
