// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"math"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

// TestRecommend_BogusSampleDecidesNothing adds samples of a counter that went back, or of a broken agent, to a constant load. The
// request stays as without them at each length of the history, and a finding names them.
func TestRecommend_BogusSampleDecidesNothing(t *testing.T) {
	for _, name := range PolicyNames() {
		policy := mustPolicy(t, name)
		for label, c := range map[string]struct {
			cores, bytes, capacityCPU, capacityMemory float64
			times                                     []int
		}{
			"one counter that goes back":            {4166, 1 << 62, 0, 0, []int{6*1440 + 1300}},
			"a counter that goes back each day":     {300, 1 << 42, 0, 0, []int{700, 1440 + 30, 3 * 1440, 6*1440 + 1439, 8 * 1440, 13*1440 + 5}},
			"several within a day":                  {30, 100 << 30, 0, 0, []int{9 * 1440, 9*1440 + 3, 9*1440 + 700, 9*1440 + 710}},
			"two in a row above any machine":        {1e6, 1 << 50, 0, 0, []int{5000, 5001}},
			"above the node":                        {8.5, 40 << 30, 8, 32 << 30, []int{5000, 5001, 5002}},
			"above the limit of that time":          {0.6, 600 << 20, 0.55, 550 << 20, []int{5000, 5001, 5002, 9000}},
			"the last sample, and the very first":   {4166, 1 << 45, 0, 0, []int{0, 14*1440 - 1}},
			"infinite in the histogram, not beyond": {math.MaxFloat32, math.MaxFloat32, 0, 0, []int{777}},
		} {
			for _, days := range []int{7, 8, 14} {
				build := func(bogus bool) Input {
					p := NewProfile()
					values := func(normal, odd float64) series.Series {
						s := minutes(days*1440, same(normal))
						for _, i := range c.times {
							if bogus && i < len(s.Values) {
								s.Values[i] = odd
							}
						}

						return s
					}

					p.AddCPU(Usage{Pod: "a", Series: values(0.2, c.cores), Capacity: c.capacityCPU})
					p.AddMemory(Usage{Pod: "a", Series: values(300<<20, c.bytes), Capacity: c.capacityMemory})

					return Input{Container: "app", Profile: p, Now: start.Add(time.Duration(days) * day), MaxCPU: 64000, MaxMemory: 1 << 40}
				}

				clean := Recommend(build(false), policy)
				got := Recommend(build(true), policy)
				checkRecommendation(t, got)

				if *got.Target.CPURequest != *clean.Target.CPURequest || *got.Target.MemoryRequest != *clean.Target.MemoryRequest {
					t.Errorf("%s, %d days, %s: Target %s, want %s as without it", name, days, label, jsonText(got.Target), jsonText(clean.Target))
				}

				if c.times[0] < days*1440 && (!hasFlag(got.CPU, FlagImplausible) || !hasFlag(got.Memory, FlagImplausible)) {
					t.Errorf("%s, %d days, %s: flags %v and %v, want %s in both", name, days, label, got.CPU.Flags, got.Memory.Flags, FlagImplausible)
				}
			}
		}
	}
}

// TestPlausible_FewSamples checks that one bogus sample of a short history does not count as a part of almost all samples.
func TestPlausible_FewSamples(t *testing.T) {
	for n := outlierSamples; n < 50; n++ {
		s := minutes(n, same(0.5))
		s.Values[n/2] = 3000
		got, dropped := Plausible(s, Cores, 0)
		if dropped.Count != 1 || !series.IsGap(got.Values[n/2]) {
			t.Errorf("Plausible(%d samples of 0.5 cores and one of 3000) drops %d samples, want that one", n, dropped.Count)
		}
	}
}

// TestPlausible_KeepsRealLoads lists loads that look odd and are real.
func TestPlausible_KeepsRealLoads(t *testing.T) {
	for name, c := range map[string]struct {
		value    func(i int) float64
		capacity float64
	}{
		"an idle container that works for two minutes": {func(i int) float64 {
			if i == 600 || i == 601 {
				return 40
			}

			return 0.01
		}, 0},
		"one minute of eight cores": {func(i int) float64 {
			if i == 600 {
				return 8
			}

			return 0.01
		}, 0},
		"one minute of a node that can give it": {func(i int) float64 {
			if i == 600 {
				return 60
			}

			return 0.01
		}, 64},
		"a large machine": {func(i int) float64 { return 200 + float64(i%7) }, 0},
		"a burst each hour": {func(i int) float64 {
			if i%60 == 0 {
				return 30
			}

			return 2
		}, 0},
	} {
		if _, dropped := Plausible(minutes(1440, c.value), Cores, c.capacity); dropped.Count > 0 {
			t.Errorf("Plausible(%s) dropped %d samples, want none", name, dropped.Count)
		}
	}

	if _, dropped := Plausible(minutes(5, func(i int) float64 { return []float64{0.1, 0.1, 40, 0.1, 0.1}[i] }), Cores, 0); dropped.Count > 0 {
		t.Errorf("Plausible of a short life dropped %d samples, want none: almost all samples are not known", dropped.Count)
	}
}

// TestPlausible_CallersValuesStay checks that the buffer of a reader is not changed.
func TestPlausible_CallersValuesStay(t *testing.T) {
	s := minutes(100, func(i int) float64 { return float64(i/99) * 5000 })
	got, dropped := Plausible(s, Cores, 0)
	if s.Values[99] != 5000 || !series.IsGap(got.Values[99]) || dropped != (Implausible{Count: 1, Largest: 5000}) {
		t.Errorf("Plausible = %v with %s, the values were changed to %v; want a gap for 5000 in a copy", got.Values[99], fmt.Sprint(dropped), s.Values[99])
	}
}
