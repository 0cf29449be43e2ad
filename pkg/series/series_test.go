// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var midnight = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func TestDaysSplitsAtMidnightUTC(t *testing.T) {
	// 1000 samples of 7 minutes, from half past eleven at night: no sample falls on midnight.
	s := Series{Start: midnight.Add(-30 * time.Minute), Step: 7 * time.Minute, Values: make([]float64, 1000)}

	total := 0
	last := Day(math.MinInt32)
	for day, part := range s.Days() {
		if day <= last {
			t.Fatalf("Days() yields day %v after %v, want ascending days", day, last)
		}

		last = day
		for i := range part.Values {
			if DayOf(part.Time(i)) != day {
				t.Fatalf("Days() yields the sample at %v on %v, want it on its own day", part.Time(i), day)
			}
		}

		total += len(part.Values)
	}

	if total != len(s.Values) {
		t.Fatalf("Days() yields %d samples, want %d", total, len(s.Values))
	}
}

func TestDayOfBeforeTheEpoch(t *testing.T) {
	if got := DayOf(time.Unix(-1, 0)); got != -1 {
		t.Errorf("DayOf(-1 s) = %d, want -1", got)
	}
	if got := DayOf(midnight).String(); got != "2026-03-01" {
		t.Errorf("DayOf(midnight) = %s, want 2026-03-01", got)
	}
}

func TestBetween(t *testing.T) {
	s := Series{Start: midnight, Step: time.Minute, Values: []float64{0, 1, 2, 3, 4}}
	for _, c := range []struct {
		from, to    time.Duration
		first, size int
	}{{-time.Hour, time.Hour, 0, 5}, {time.Minute, 3 * time.Minute, 1, 2}, {90 * time.Second, 3 * time.Minute, 2, 1}, {time.Hour, 2 * time.Hour, 5, 0}, {3 * time.Minute, time.Minute, 3, 0}} {
		got := s.Between(midnight.Add(c.from), midnight.Add(c.to))
		if len(got.Values) != c.size || c.size > 0 && got.Values[0] != float64(c.first) {
			t.Errorf("Between(%v, %v) = %v, want %d values from %d", c.from, c.to, got.Values, c.size, c.first)
		}
	}
}

func TestResample(t *testing.T) {
	s := Series{Start: midnight.Add(2 * time.Minute), Step: time.Minute, Values: []float64{1, Gap(), 3, 10, 20, Gap(), Gap(), Gap(), Gap(), Gap(), 7}}
	mean, err := s.Resample(5*time.Minute, Mean)
	if err != nil {
		t.Fatal(err)
	}

	if !mean.Start.Equal(midnight) || len(mean.Values) != 3 || mean.Values[0] != 2 || mean.Values[1] != 15 || mean.Values[2] != 7 {
		t.Errorf("Resample(5m, Mean) = %v from %v, want 2, 15, 7 from %v", mean.Values, mean.Start, midnight)
	}

	peak, err := s.Resample(5*time.Minute, Max)
	if err != nil || peak.Values[0] != 3 || peak.Values[1] != 20 || peak.Values[2] != 7 {
		t.Errorf("Resample(5m, Max) = %v, %v; want 3, 20, 7", peak.Values, err)
	}
	if _, err := s.Resample(time.Second, Mean); err == nil {
		t.Error("Resample(1s) of a series with a step of 1m succeeded, want an error")
	}

	hole, err := Series{Start: midnight, Step: time.Minute, Values: []float64{1, Gap(), Gap(), 4}}.Resample(time.Minute, Mean)
	if err != nil || !IsGap(hole.Values[1]) {
		t.Errorf("Resample(1m): a cell without samples is %v, %v; want a gap", hole.Values, err)
	}
}

func TestClean(t *testing.T) {
	s := Series{Start: midnight, Step: time.Minute, Values: []float64{Gap(), 1, -1, math.Inf(1), 4, Gap(), Gap(), Gap(), 8, Gap()}}
	if refused := s.Clean(); refused != 2 {
		t.Errorf("Clean() = %d, want 2", refused)
	}
	if !IsGap(s.Values[2]) || !IsGap(s.Values[3]) || s.Values[1] != 1 || s.Values[8] != 8 {
		t.Errorf("Clean() left %v, want gaps at 2 and 3 and the other values unchanged", s.Values)
	}

	sum := s.Summarize()
	if sum.Count != 3 || sum.Gaps != 7 || sum.Max != 8 || sum.Min != 1 || math.Abs(sum.Mean-13.0/3) > 1e-12 {
		t.Errorf("Summarize() = %+v, want 3 samples from 1 to 8 with a mean of 13/3, and 7 gaps", sum)
	}
}

func TestQuantileIsMonotoneAndBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, 500)
	for i := range values {
		values[i] = rng.ExpFloat64()
	}

	values[7] = Gap()
	last := -1.0
	for q := 0.0; q <= 1; q += 0.01 {
		got := Quantile(values, q)
		if got < last {
			t.Fatalf("Quantile(%v) = %v, want at least the %v of a smaller share", q, got, last)
		}

		last = got
	}

	for _, c := range []struct {
		values  []float64
		q, want float64
	}{{nil, 0.5, Gap()}, {[]float64{3}, 0.99, 3}, {[]float64{0, 1}, 0.25, 0.25}} {
		if got := Quantile(c.values, c.q); got != c.want && !(IsGap(got) && IsGap(c.want)) {
			t.Errorf("Quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
}
