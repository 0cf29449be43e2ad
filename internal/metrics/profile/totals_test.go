// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"math"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// TestTotals checks that the usage of pods with different steps is summed and that missing samples are gaps and not
// zeros.
func TestTotals(t *testing.T) {
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	ref := workload.Ref{Namespace: "shop", Kind: "Deployment", Name: "web"}
	u := &Usage{totals: newTotals(start, start.Add(time.Hour))}
	chunk := func(offset, step time.Duration, values ...float64) metrics.Chunk {
		return metrics.Chunk{Series: series.Series{Start: start.Add(offset), Step: step, Values: values}}
	}
	id := identityOf(ref)
	u.totals.add(id, nil, chunk(5*time.Minute, 5*time.Minute, 1, 2, series.Gap(), 3), metrics.CPU)
	u.totals.add(id, nil, chunk(10*time.Minute, time.Minute, 10, 10, 10, 10, 10), metrics.CPU) // A whole cell of another pod.

	u.totals.add(id, nil, chunk(20*time.Minute, 10*time.Minute, 4), metrics.CPU)                          // Over two cells.
	u.totals.add(id, nil, chunk(-5*time.Minute, 10*time.Minute, 6), metrics.CPU)                          // Starts before the window.
	u.totals.add(id, nil, chunk(55*time.Minute, 10*time.Minute, 8), metrics.CPU)                          // Ends after it.
	u.totals.add(id, nil, chunk(30*time.Minute, 5*time.Minute, -1, math.Inf(1), math.NaN()), metrics.CPU) // Invalid values.
	u.totals.add(id, nil, chunk(0, 5*time.Minute, 1), metrics.UnreclaimableMemory)                        // Is included in memory.
	u.totals.add(id, nil, chunk(0, 0, 1), metrics.CPU)
	u.totals.add(id, nil, chunk(0, 5*time.Minute, 1<<30), metrics.Memory)
	nan := math.NaN()
	cpu, memory := u.Totals(ref)

	want := []float64{6, 1, 12, nan, 7, 4, nan, nan, nan, nan, nan, 8}
	if len(cpu.Values) != len(want) || !cpu.Start.Equal(start) || cpu.Step != TotalStep {
		t.Fatalf("Totals: CPU %+v, want %d cells of %v from %v", cpu, len(want), TotalStep, start)
	}

	for i, v := range want {
		if got := cpu.Values[i]; math.Abs(got-v) > 1e-5 || math.IsNaN(got) != math.IsNaN(v) {
			t.Errorf("CPU cell %d is %g, want %g", i, got, v)
		}
	}

	if memory.Values[0] != 1<<30 || !math.IsNaN(memory.Values[1]) {
		t.Errorf("Totals: memory %v, want 1 GiB and then a gap", memory.Values)
	}
	if cpu, memory := u.Totals(workload.Ref{Namespace: "shop", Kind: "Deployment", Name: "other"}); len(cpu.Values)+len(memory.Values) > 0 {
		t.Error("Totals of a workload that was not requested has values, want none")
	}
	if cpu, _ := (&Usage{}).Totals(ref); len(cpu.Values) > 0 {
		t.Error("Totals of usage without totals has values, want none")
	}
}
