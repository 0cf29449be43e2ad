// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package quality_test

import (
	"math"
	"testing"
	"time"

	"crane.io/crane/internal/scheduler/simulate/quality"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestTally(t *testing.T) {
	if r := (&quality.Tally{}).Run(); r.Sigma != 0 || math.IsNaN(r.Mean) {
		t.Errorf("nothing measured gives %+v", r)
	}

	var tally quality.Tally
	milli := []int64{1000, 4000}
	tally.Add([]float64{0.2, 0.4}, milli, 2, time.Minute)
	tally.Add([]float64{0.7, 1.5}, milli, 1, time.Minute)

	r := tally.Run()
	// Demand above capacity is capacity in use, and the rest throttled.
	if !near(r.Sigma, (0.1+0.15)/2) || !near(r.Mean, (0.3+0.85)/2) || !near(r.Throttled, 2) || !near(r.InUse, 0.75) {
		t.Errorf("Run() = %+v, want sigma 0.125, mean 0.575, 2 throttled core-minutes and 0.75 in use", r)
	}
	if r.Hot != 1 || r.Warm != 2 || r.Peak != 1 || !near(r.Sigma95, 0.15) || len(r.Course) != 2 {
		t.Errorf("Run() = %+v, want 1 node-minute above 80 %% and 2 above 65 %%, peak 1, sigma95 0.15 and two points", r)
	}
}

func TestOver(t *testing.T) {
	if e := quality.Over(nil); e != (quality.Estimate{}) {
		t.Errorf("Over(nil) = %+v, want zero", e)
	}
	if e := quality.Over([]float64{3, math.NaN(), math.Inf(1)}); e.Mean != 3 || e.Interval != 0 {
		t.Errorf("Over of 3, NaN and infinity = %+v, want 3 without an interval", e)
	}
	// Student's t for two degrees of freedom is 4.302653.
	if e := quality.Over([]float64{1, 2, 3}); !near(e.Mean, 2) || math.Abs(e.Interval-4.302653/math.Sqrt(3)) > 1e-5 {
		t.Errorf("Over of 1, 2 and 3 = %+v, want 2 with the interval of Student's t", e)
	}
}

func TestClosed(t *testing.T) {
	for _, c := range [][4]float64{{10, 5, 10, 0}, {10, 5, 5, 1}, {10, 5, 6, 0.8}, {10, 5, 12, -0.4}, {10, 5, 4, 1.2}} {
		if got := quality.Closed(c[0], c[1], c[2]); !near(got, c[3]) {
			t.Errorf("Closed(%v, %v, %v) = %v, want %v", c[0], c[1], c[2], got, c[3])
		}
	}

	if got := quality.Closed(5, 5, 4); !math.IsNaN(got) {
		t.Errorf("Closed(5, 5, 4) = %v, want NaN: there is no gap", got)
	}
}

func TestSummarize(t *testing.T) {
	normal := []quality.Run{{Sigma: 0.2, Hot: 10, Placements: "a"}, {Sigma: 0.1, Hot: 0, Placements: "b"}}
	oracle := []quality.Run{{Sigma: 0.1}, {Sigma: 0.05}}

	s := quality.Summarize([]quality.Run{{Sigma: 0.1, Hot: 5, Placements: "a"}, {Sigma: 0.1, Placements: "c"}}, normal, oracle)
	// The second seed has no hot node to begin with, so it does not count for that gap.
	if !near(s.SigmaRatio.Mean, 0.75) || !near(s.SigmaClosed.Mean, 0.5) || !near(s.HotClosed.Mean, 0.5) || s.LikeDefault != 1 {
		t.Errorf("Summarize = %+v, want ratio 0.75, both gaps closed by 0.5 and one seed like the default", s)
	}
	if s := quality.Summarize(oracle, nil, nil); s.SigmaClosed.Mean != 0 || !near(s.Sigma.Mean, 0.075) {
		t.Errorf("Summarize without comparisons = %+v, want sigma 0.075 and no gap", s)
	}
}
