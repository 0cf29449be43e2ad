// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
)

// TestHighs checks that highs are quantiles over the past days of the highest sample of a quarter of an hour, at the same time of day.
func TestHighs(t *testing.T) {
	begin := time.Date(2025, 3, 3, 0, 0, 0, 0, time.UTC)
	m := NewModel(time.Minute)
	const days = 5
	for i := range days * 24 * 60 {
		at := begin.Add(time.Duration(i) * time.Minute)
		load := 10.0
		if at.Hour() == 9 && at.Minute() == 20+i/(24*60) { // a minute a day, each day another one and higher
			load = 100 + 10*float64(i/(24*60))
		}

		m.Observe(at, load)
	}

	f, err := m.Forecast(30 * time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	if want := 30 * 4; len(f.Highs) != want {
		t.Fatalf("%d highs, want %d", len(f.Highs), want)
	}

	highs := f.OfHighs()
	for _, c := range []struct {
		after time.Duration
		want  float64
	}{
		{9*time.Hour + 14*time.Minute, 10},
		{9*time.Hour + 15*time.Minute, 120},
		{9*time.Hour + 29*time.Minute, 120},
		{9*time.Hour + 30*time.Minute, 10},
		{24*time.Hour + 3*time.Hour, 10},
	} {
		q, ok := highs.At(begin.Add(days*24*time.Hour + c.after))
		if !ok || math.Abs(q.At(0.5)-c.want) > 0.01*c.want {
			t.Errorf("%s after midnight the median is %v, want %v", c.after, q.At(0.5), c.want)
		}
	}

	if q, _ := highs.At(begin.Add(days*24*time.Hour + 9*time.Hour + 20*time.Minute)); math.Abs(q.At(0.99)-140) > 2 {
		t.Errorf("the 0.99 quantile of the highs of five days is %v, want about 140", q.At(0.99))
	}
}

// TestHighsNeedDays checks that one day is no distribution, and that long slots have no highs.
func TestHighsNeedDays(t *testing.T) {
	for step, want := range map[time.Duration]int{5 * time.Minute: 4, time.Hour: 0} {
		m := NewModel(step)
		for at := time.Unix(0, 0); at.Before(time.Unix(0, 0).Add(20 * time.Hour)); at = at.Add(step) {
			m.Observe(at, 5)
		}

		f, err := m.Forecast(time.Hour)
		if err != nil {
			t.Fatal(err)
		}

		if len(f.Highs) != want {
			t.Fatalf("step %s: %d highs, want %d", step, len(f.Highs), want)
		}

		for _, q := range f.Highs {
			if q != (forecast.Quantiles{}) {
				t.Errorf("step %s: highs of %v after less than two days, want zeros", step, q)
			}
		}

		if v := f.OfHighs().Values; len(v) > 0 && want == 0 {
			t.Errorf("step %s: OfHighs has %d values without highs, want 0", step, len(v))
		}
	}
}
