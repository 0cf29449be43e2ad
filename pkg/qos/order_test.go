// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"crane.io/crane/pkg/units"
)

// TestOrderedVictims checks that each criterion takes precedence over the following ones.
func TestOrderedVictims(t *testing.T) {
	// In the order of victims: each precedes the next by the property in its name only.
	want := []Pod{
		{Name: "elastic", Elastic: true, Priority: 2000, Class: Guaranteed, Started: at(0)},
		{Name: "lower-priority", Priority: -5, Class: Guaranteed, Started: at(0)},
		{Name: "best-effort", Class: BestEffort, Started: at(0)},
		{Name: "uses-more", Class: Burstable, UsedCPU: Measurement[units.MilliCPU]{Value: 500}, UsedMemory: Measurement[units.Bytes]{Value: 5 << 30}, Started: at(0)},
		{Name: "younger", Class: Burstable, Started: at(100)},
		{Name: "a", Class: Burstable, Started: at(50), Namespace: "n1"},
		{Name: "b", Class: Burstable, Started: at(50), Namespace: "n1"},
		{Name: "a", Class: Burstable, Started: at(50), Namespace: "n2"},
		{Name: "guaranteed", Class: Guaranteed, UsedCPU: Measurement[units.MilliCPU]{Value: 900}, UsedMemory: Measurement[units.Bytes]{Value: 9 << 30}, Started: at(200)},
		{Name: "important", Priority: 7, Class: BestEffort, UsedCPU: Measurement[units.MilliCPU]{Value: 900}, UsedMemory: Measurement[units.Bytes]{Value: 9 << 30}, Started: at(200)},
	}

	for i := range want {
		want[i].UID = fmt.Sprint("uid-", i)
		want[i].Allowed = []string{"evict"}
	}

	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		pods := append(slices.Clone(want), Pod{UID: "other", Name: "not-allowed", Priority: -9})
		rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })

		for _, by := range []Criterion{ByCPU, ByMemory} {
			got := orderedVictims(&Observation{Pods: pods}, "evict", by)
			if !slices.EqualFunc(got, want, func(p *Pod, w Pod) bool { return p.UID == w.UID }) {
				t.Fatalf("orderedVictims by %s = %v, want uid-0 to uid-9 in order", by, podUIDs(got))
			}
		}
	}
}

func podUIDs(pods []*Pod) []string {
	uids := make([]string, len(pods))
	for i, p := range pods {
		uids[i] = p.UID
	}

	return uids
}
