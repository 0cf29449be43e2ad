// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// TestMayClose_Random checks that no node is closed or unknown if MayClose returns false, for any nodes and
// placements, and that it returns true if a node is closed.
func TestMayClose_Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	no, closed := 0, 0
	for range 4000 {
		r := rules(t, strategies()[rng.IntN(3)], func(s *Spec) {
			s.Marks = map[units.Resource]WaterMarks{units.CPU: {Low: 0.2, Schedule: 0.6, Evict: 0.8}}
		})

		nodes := make([]*Node, 1+rng.IntN(5))
		peaks := r.NewPeaks()
		for i := range nodes {
			seen := report(r, units.Ratio(rng.Float64()*0.5), units.Ratio(rng.Float64()*0.6), at(-rng.IntN(130)))
			if rng.IntN(30) == 0 {
				seen.Samples[rng.IntN(len(seen.Samples))] = Sample{}
			}

			seen.Capacity.CPU = units.MilliCPU(1000 + rng.IntN(20_000))
			nodes[i] = r.NodeAt(seen, &Arrivals{}, at(0))
			peaks.Raise(nodes[i])
		}

		f := fleet(r, at(0), nodes...)
		for range rng.IntN(4) {
			i := rng.IntN(len(nodes))
			nodes[i] = nodes[i].WithPod(Amount{CPU: units.MilliCPU(rng.IntN(1000))})
			peaks.Raise(nodes[i])
		}

		use := Amount{CPU: units.MilliCPU(rng.IntN(2000)), Memory: units.Bytes(rng.IntN(5)) * gib}
		may := f.MayClose(peaks, use)
		if !may {
			no++
		}

		for _, n := range nodes {
			limit, unknown := f.Closed(n, use, at(0).UnixNano())
			if limit != Open {
				closed++
			}

			if !may && (limit != Open || unknown) {
				t.Fatalf("MayClose = false, but Closed = %d, unknown %v, want open and known: %+v", limit, unknown, n.Loads)
			}
		}
	}

	if no < 500 || closed < 500 {
		t.Errorf("MayClose was false %d times and %d nodes were closed, want 500 or more of both", no, closed)
	}
}

func TestMayClose_OtherRules(t *testing.T) {
	r := rules(t, Strategy{})
	other := rules(t, Strategy{})
	full := other.NodeAt(loadedReport(other, 0.99, 0.99, at(0)), &Arrivals{}, at(0))
	half := r.NodeAt(loadedReport(r, 0.5, 0.5, at(0)), &Arrivals{}, at(0))
	f := fleet(r, at(0), half)

	peaks := r.NewPeaks()
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 100 {
				peaks.Raise(full)
				peaks.Raise(half)
			}
		})
	}

	wait.Wait()
	if f.MayClose(peaks, Amount{CPU: 100}) {
		t.Error("MayClose = true with nodes of other rules, want them ignored")
	}

	peaks.Raise(r.NodeAt(loadedReport(r, 0.5, 0.5, at(-90000)), &Arrivals{}, at(0)))
	if !f.MayClose(peaks, Amount{CPU: 100}) {
		t.Error("MayClose = false with a node without a fresh load, want true")
	}

	var arrivals Arrivals
	arrivals.Add("pod", Amount{CPU: 1000}, time.Time{})
	again := r.NewPeaks()
	again.Raise(r.NodeAt(loadedReport(r, 0.5, 0.5, at(0)), &arrivals, at(0)))

	if f.MayClose(again, Amount{CPU: 500}) || !f.MayClose(again, Amount{CPU: 501}) {
		t.Error("MayClose at 60 % of a limit of 65 %: want false for a pod of 5 %, true for a larger one")
	}
}
