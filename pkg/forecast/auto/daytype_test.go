// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"math/rand/v2"
	"slices"
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

// TestMidnightOfADayType checks, from each day of a week, at which midnights the first segments end.
func TestMidnightOfADayType(t *testing.T) {
	for name, c := range map[string]struct {
		rest  []time.Weekday
		days  int
		ended []time.Weekday // the days whose evening ends at the midnight
	}{
		"weekend":             {[]time.Weekday{time.Saturday, time.Sunday}, 14, []time.Weekday{time.Friday, time.Sunday}},
		"Friday and Saturday": {[]time.Weekday{time.Friday, time.Saturday}, 14, []time.Weekday{time.Thursday, time.Saturday}},
		"all days alike":      {nil, 14, nil},
		"less than two weeks": {[]time.Weekday{time.Saturday, time.Sunday}, 12, nil},
		"more than is kept":   {[]time.Weekday{time.Sunday}, 40, []time.Weekday{time.Saturday, time.Sunday}},
	} {
		t.Run(name, func(t *testing.T) {
			for first := range 7 {
				rng := rand.New(rand.NewPCG(uint64(first), 3))
				s := series.Series{Start: monday.AddDate(0, 0, first), Step: 5 * time.Minute, Values: make([]float64, (c.days*24+20)*12)}
				for i := range s.Values {
					level := 2.0
					if slices.Contains(c.rest, s.Time(i).Weekday()) {
						level = 0.65
					}

					s.Values[i] = level * (1 + 0.03*rng.NormFloat64())
				}

				_, _, rows := rowsOf(s)
				want := 0
				if slices.Contains(c.ended, s.End().Weekday()) {
					want = 4 * 12
				}
				if rows.midnight != want {
					t.Errorf("from %s 20:00 the first segments end after %d slots, want %d", s.End().Weekday(), rows.midnight, want)
				}
			}
		})
	}
}
