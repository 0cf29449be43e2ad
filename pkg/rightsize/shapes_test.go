// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"slices"
	"testing"

	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

// TestOddShapes bounds the requests for loads unlike those that policies were chosen on: they are neither below the median of the use nor
// above twice the highest use of the history, whatever the policy; numbers that no request can have are cut.
func TestOddShapes(t *testing.T) {
	for name, load := range families.Odd() {
		var used []float64
		for _, v := range load.Values {
			if v >= 0 && v <= 1e300 {
				used = append(used, v)
			}
		}

		slices.Sort(used)
		low := series.QuantileSorted(used, 0.5)
		high := used[len(used)-1]
		const mega = 1 << 20
		p := NewProfile()
		p.AddCPU(Usage{Pod: "a", Series: load})
		p.AddMemory(Usage{Pod: "a", Series: minutesOf(load, mega)})

		for _, policyName := range PolicyNames() {
			policy := mustPolicy(t, policyName)
			r := Recommend(Input{Container: "app", Profile: p, Now: load.End()}, policy)
			checkRecommendation(t, r)
			check := func(resource string, got, floor, unit float64) {
				if got < min(maxQuantity, max(floor, unit*low))*0.98 || got > max(floor, 2*unit*high) {
					t.Errorf("%s, %s: %s of %g, want it to suit a use of %g to %g", name, policyName, resource, got, unit*low, unit*high)
				}
			}

			if v := r.Target.CPURequest; v != nil {
				check("CPU", float64(*v), float64(policy.CPU.Floor), 1000)
			}
			if v := r.Target.MemoryRequest; v != nil {
				check("memory", float64(*v), float64(policy.Memory.Floor), mega)
			}
		}
	}
}
