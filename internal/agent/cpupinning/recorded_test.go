// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"reflect"
	"testing"

	"crane.io/crane/pkg/cpumanager"
	"crane.io/crane/pkg/numa"
)

// TestRecordedState checks that the CPU assignments which the agent of commit 2fe0246b wrote are read.
func TestRecordedState(t *testing.T) {
	want := []cpumanager.Assignment{
		{ID: cpumanager.ID{Pod: "pod-a", Container: "app"}, Policy: numa.PolicyExclusive, CPUs: numa.NewCPUSet(2, 3, 6), Zones: map[string]int{"node0": 3}},
		{ID: cpumanager.ID{Pod: "pod-b", Container: "app"}, Policy: numa.PolicyNUMA, CPUs: numa.NewCPUSet(4, 5)},
	}

	got, found, err := readState("testdata/state-v1-2fe0246b.json")
	if err != nil || !found || !reflect.DeepEqual(got, want) {
		t.Errorf("readState = %+v, %t, %v, want %+v", got, found, err, want)
	}
}
