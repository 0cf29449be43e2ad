// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload_test

import (
	"slices"
	"testing"
	"time"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

func TestWriteCause(t *testing.T) {
	w := nodeload.ChangeDetector{
		MinChange: 0.02, Thresholds: []units.Ratio{0.65}, Evict: 0.9, Active: 8 * time.Minute, Period: 3 * time.Minute,
	}

	at := func(value units.Ratio, age time.Duration) nodeload.Sample {
		return nodeload.Sample{Value: value, Time: noon.Add(-age)}
	}
	for name, test := range map[string]struct {
		old, next nodeload.Sample
		want      nodeload.Cause
	}{
		"nothing there":         {nodeload.Sample{}, at(0.3, 0), nodeload.Missing},
		"too old":               {at(0.3, 9*time.Minute), at(0.3, 0), nodeload.Outdated},
		"from the future":       {at(0.3, -time.Hour), at(0.3, 0), nodeload.Outdated},
		"old, and nothing new":  {at(0.3, time.Hour), at(0.3, time.Hour), ""},
		"hot, and the same":     {at(0.95, 3*time.Minute), at(0.95, 0), nodeload.AboveEvict},
		"the same":              {at(0.3, 3*time.Minute), at(0.3, 0), ""},
		"a little more":         {at(0.3, 3*time.Minute), at(0.319, 0), ""},
		"more":                  {at(0.3, 3*time.Minute), at(0.321, 0), nodeload.Moved},
		"less":                  {at(0.3, 3*time.Minute), at(0.2, 0), nodeload.Moved},
		"over the limit":        {at(0.65, 3*time.Minute), at(0.651, 0), nodeload.Crossed},
		"back under the limit":  {at(0.651, 3*time.Minute), at(0.65, 0), nodeload.Crossed},
		"gone before the next":  {at(0.3, 6*time.Minute), at(0.3, 0), nodeload.Expiring},
		"no newer than the old": {at(0.3, time.Minute), at(0.9, time.Minute), ""},
	} {
		if got := w.WriteCause(test.old, test.next, noon); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestWriteCause_NothingExpires runs rounds of a constant load: the value is always valid, and is not written in
// each round.
func TestWriteCause_NothingExpires(t *testing.T) {
	for _, m := range nodeload.GocraneSpec().Metrics {
		w := nodeload.ChangeDetector{MinChange: 0.02, Active: m.Active(), Period: m.Period}
		var have nodeload.Sample
		writes := 0
		for round := range 100 {
			now := noon.Add(time.Duration(round) * m.Period)
			if round > 0 && have.StateAt(now.Add(30*time.Second), m.Active()) != nodeload.Fresh {
				t.Fatalf("%s: the value is not fresh in round %d, want it renewed before it expires", m.Name, round)
			}

			next := nodeload.Sample{Value: 0.4, Time: now}
			if w.WriteCause(have, next, now) != "" {
				have = next
				writes++
			}
		}

		if m.Period == 3*time.Minute && writes != 50 {
			t.Errorf("%s: %d writes in 100 rounds, want 50", m.Name, writes)
		}
	}
}

func TestThresholds(t *testing.T) {
	spec := nodeload.GocraneSpec()
	spec.Marks = map[units.Resource]nodeload.WaterMarks{units.CPU: {Low: 0.3, Schedule: 0.6, Evict: 0.8}}
	p, err := nodeload.NewPolicy(spec)
	if err != nil {
		t.Fatal(err)
	}

	if got, want := p.Thresholds(0), []units.Ratio{0.6, 0.3, 0.6, 0.8}; !slices.Equal(got, want) {
		t.Errorf("Thresholds of CPU = %v, want %v", got, want)
	}
	if p.EvictMark(0) != 0.8 || p.EvictMark(1) != 0 || p.EvictMark(3) != 0 {
		t.Errorf("EvictMark of metrics 0, 1 and 3 = %v, %v, %v, want 0.8, 0, 0", p.EvictMark(0), p.EvictMark(1), p.EvictMark(3))
	}
	if got, want := p.Thresholds(3), []units.Ratio{0.65}; !slices.Equal(got, want) {
		t.Errorf("of memory %v, want %v", got, want)
	}
}

func TestHotCause(t *testing.T) {
	at := func(value int64, age time.Duration) nodeload.Hot {
		return nodeload.Hot{Value: value, Time: noon.Add(-age)}
	}
	for name, test := range map[string]struct {
		have nodeload.Hot
		want int64
		due  nodeload.Cause
	}{
		"nothing, and none":        {nodeload.Hot{}, 0, ""},
		"nothing, and some":        {nodeload.Hot{}, 2, nodeload.Missing},
		"the same":                 {at(2, time.Minute), 2, ""},
		"more":                     {at(2, time.Minute), 3, nodeload.Moved},
		"no more":                  {at(2, time.Minute), 0, nodeload.Moved},
		"about to expire":          {at(2, 4*time.Minute), 2, nodeload.Expiring},
		"zero need not be renewed": {at(0, 4*time.Minute), 0, ""},
		"expired":                  {at(2, time.Hour), 0, ""},
		"expired, and some":        {at(2, time.Hour), 1, nodeload.Outdated},
		"from the future":          {at(2, -time.Hour), 0, nodeload.Outdated},
	} {
		if got := nodeload.HotCause(test.have, test.want, noon, 30*time.Second); got != test.due {
			t.Errorf("%s: %q, want %q", name, got, test.due)
		}
	}
}
