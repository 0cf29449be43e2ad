// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

// TestDayTypeChangesAtMidnight checks, from each hour of a Sunday evening, that the rest of the evening continues and that the first
// hours of Monday are those of a working day.
func TestDayTypeChangesAtMidnight(t *testing.T) {
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("UTC+8", 8*3600), time.FixedZone("UTC-7", -7*3600)} {
		t.Run(zone.String(), func(t *testing.T) { testDayTypeChangesAtMidnight(t, zone) })
	}
}

func testDayTypeChangesAtMidnight(t *testing.T, zone *time.Location) {
	t.Helper()
	calendar, err := NewCalendar(nil, zone)
	if err != nil {
		t.Fatal(err)
	}
	_, offset := monday.In(zone).Zone()
	first := monday.Add(-time.Duration(offset) * time.Second) // Midnight in the zone.
	for hour := 17; hour < 24; hour++ {
		rng := rand.New(rand.NewPCG(1, 2))
		values := make([]float64, (20*24+hour)*60)
		for i := range values {
			level := 2.0
			if d := first.Add(time.Duration(i) * time.Minute).In(zone).Weekday(); d == time.Saturday || d == time.Sunday {
				level = 0.65
			}
			values[i] = level * (1 + 0.03*rng.NormFloat64())
		}
		f, err := (Algorithm{Holidays: calendar}).Forecast(series.Series{Start: first, Step: time.Minute, Values: values}, day)
		if err != nil {
			t.Fatal(err)
		}
		midnight := (24 - hour) * 60
		for i, v := range f.Values[:midnight+180] {
			want := 0.65
			if i >= midnight {
				want = 2
			}
			if math.Abs(v[0]-want) > 0.1*want {
				t.Errorf("from Sunday %d:00, %d minutes after midnight: median %.2f, want %.2f", hour, i-midnight, v[0], want)
				break
			}
		}
	}
}
