// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"testing"
	"time"

	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// limitedDays returns the input of a container with constant usage and a limit, in cores, with counters of the kernel; nil for none.
func limitedDays(cores, limit float64, throttling *Throttling) Input {
	in := Input{Container: "app", Profile: NewProfile(), Now: start.Add(14 * day)}
	in.Current = guaranteed(units.MilliCPU(1000*limit), 1<<30)
	s := series.Series{Start: start, Step: 5 * time.Minute, Values: make([]float64, 14*288)}
	for i := range s.Values {
		s.Values[i] = cores
	}

	in.Profile.AddCPU(Usage{Pod: "a", Series: s, Limit: limit, Throttling: throttling})
	return in
}

// throttledFinding returns the finding that a container was throttled; empty for none.
func throttledFinding(s Sizing) string {
	for _, f := range s.Flags {
		if f.Code == FlagThrottled {
			return f.Detail
		}
	}

	return ""
}

// TestRecommend_ThrottlingCounters checks that the counters of the kernel decide whether a container was throttled, where they exist.
func TestRecommend_ThrottlingCounters(t *testing.T) {
	for name, c := range map[string]struct {
		cores, limit float64
		throttling   *Throttling
		low, high    units.MilliCPU
		flagged      bool
	}{
		"at the limit, not counted":        {0.99, 1, nil, 1200, 1300, true},
		"at the limit, not throttled":      {0.99, 1, &Throttling{}, 1000, 1100, false},
		"at the limit, throttled":          {0.99, 1, &Throttling{Share: 0.7}, 1200, 1300, true},
		"bursts below the limit":           {0.3, 1, &Throttling{Share: 0.4}, 1000, 1000, true},
		"few bursts below the limit":       {0.3, 1, &Throttling{Share: 0.02}, 300, 330, false},
		"below the limit, not throttled":   {0.3, 1, &Throttling{}, 300, 330, false},
		"below the limit, not counted":     {0.3, 1, nil, 300, 330, false},
		"bursts at a third of a millicore": {0.0003, 0.1, &Throttling{Share: 0.5}, 100, 100, true},
	} {
		for _, policy := range []string{DefaultPolicy, LatencySensitivePolicy} {
			p := mustPolicy(t, policy)
			p.CPU.Limit = LimitPolicy{Mode: LimitKeepRatio}
			r := Recommend(limitedDays(c.cores, c.limit, c.throttling), p)
			checkRecommendation(t, r)
			high := c.high
			if policy == LatencySensitivePolicy {
				high += high / 3
			}

			got := *r.Target.CPURequest
			if text := throttledFinding(r.CPU); got < c.low || got > high || (text != "") != c.flagged {
				t.Errorf("%s, %s: CPU request %d with the finding %q, want %d to %d and a finding: %t", policy, name, got, text, c.low, high, c.flagged)
			}
		}
	}
}

// TestRecommend_ThrottlingOfFewPods checks that a pod that lives for minutes does not keep the limit of all.
func TestRecommend_ThrottlingOfFewPods(t *testing.T) {
	in := limitedDays(0.3, 1, &Throttling{})
	s := series.Series{Start: start.Add(2 * day), Step: 5 * time.Minute, Values: []float64{0.9, 0.8, 0.7}}
	in.Profile.AddCPU(Usage{Pod: "b", Series: s, Limit: 1, Throttling: &Throttling{Share: 0.9}})
	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	if got := *r.Target.CPURequest; got > 400 || throttledFinding(r.CPU) != "" {
		t.Errorf("a throttled pod of minutes beside one of days: CPU request %d with the finding %q, want about 310 and none", got, throttledFinding(r.CPU))
	}
}
