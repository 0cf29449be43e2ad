// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

// tally sums the loss of forecasts of one kind of day.
type tally struct {
	days                    int
	errors, pinball, points float64
	covered                 float64
}

func (t *tally) add(actual []float64, f forecast.Forecast, from, to int) {
	t.days++
	for i := from; i < to; i++ {
		y := actual[i]
		median := f.Values[i].At(0.5)
		upper := f.Values[i].At(0.95)
		t.errors += math.Abs(y - median)

		t.pinball += max(0.95*(y-upper), 0.05*(upper-y))
		t.points++
		if y <= upper {
			t.covered++
		}
	}
}

// TestCalendar checks that known holidays improve their forecasts and leave other days unchanged.
func TestCalendar(t *testing.T) {
	const step, perDay = 15 * time.Minute, 96
	var known, unknown, rest, restWithout tally
	for _, f := range families.All() {
		if f.Name != "weeks with holidays" {
			continue
		}

		for seed := range uint64(4) {
			s := f.Make(400+seed, 63, step)
			var dates []string
			quiet := map[int]bool{}
			for d := range 63 {
				sum := 0.0
				for _, v := range s.Values[d*perDay : (d+1)*perDay] {
					sum += v
				}

				at := s.Time(d * perDay)
				if w := at.Weekday(); sum/perDay < 45 && w != time.Saturday && w != time.Sunday {
					quiet[d] = true
					dates = append(dates, at.Format(time.DateOnly))
				}
			}

			calendar, err := NewCalendar(dates, nil)
			if err != nil {
				t.Fatal(err)
			}

			for d := 36; d < 62; d++ {
				h := series.Series{Start: s.Time((d - 36) * perDay), Step: step, Values: s.Values[(d-36)*perDay : d*perDay]}
				with, err := Algorithm{Holidays: calendar}.Forecast(h, day)
				if err != nil {
					t.Fatal(err)
				}

				without, err := Algorithm{}.Forecast(h, day)
				if err != nil {
					t.Fatal(err)
				}

				if quiet[d] {
					known.add(s.Values[d*perDay:], with, 0, perDay)
					unknown.add(s.Values[d*perDay:], without, 0, perDay)
				} else {
					rest.add(s.Values[d*perDay:], with, 0, perDay)
					restWithout.add(s.Values[d*perDay:], without, 0, perDay)
				}
			}
		}
	}

	t.Logf("%d holidays: errors %.2f, without a calendar %.2f, coverage %.3f; other days %.2f and %.2f, coverage %.3f", known.days,
		known.errors/known.points, unknown.errors/unknown.points, known.covered/known.points, rest.errors/rest.points,
		restWithout.errors/restWithout.points, rest.covered/rest.points)

	if known.days < 5 || known.errors > unknown.errors/5 || known.covered/known.points < 0.88 {
		t.Error("known holidays are not forecast as such, want a fifth of the errors at most and 0.88 covered")
	}
	if c := rest.covered / rest.points; rest.errors > 1.02*restWithout.errors || c < 0.92 {
		t.Error("other days are worse with known holidays, want at most 1.02 times the errors and 0.92 covered")
	}
}

func TestCalendarDays(t *testing.T) {
	berlin := time.FixedZone("two hours east", 7200)
	c, err := NewCalendar([]string{"2026-12-25", " 1969-12-31"}, berlin)
	if err != nil {
		t.Fatal(err)
	}

	for at, want := range map[string]bool{
		"2026-12-24T21:59:59Z": false, "2026-12-24T22:00:00Z": true, "2026-12-25T21:59:59Z": true, "2026-12-25T22:00:00Z": false,
		"1969-12-31T12:00:00Z": true, "1970-01-01T12:00:00Z": false,
	} {
		when, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}

		if got := c.Holiday(when); got != want {
			t.Errorf("Holiday(%s) = %v, want %v", at, got, want)
		}
	}

	if (Calendar{}).Holiday(monday) {
		t.Error("Holiday of an empty calendar = true, want false")
	}

	for _, bad := range []string{"tomorrow", "2026-02-30", ""} {
		if _, err := NewCalendar([]string{bad}, nil); err == nil {
			t.Errorf("NewCalendar(%q) succeeded, want an error", bad)
		}
	}

	// Where nothing but holidays is known, they are all there is to go by.
	h := history(t, "daily")

	var dates []string
	for d := range 20 {
		dates = append(dates, h.Start.AddDate(0, 0, d).Format(time.DateOnly))
	}

	all, err := NewCalendar(dates, nil)
	if err != nil {
		t.Fatal(err)
	}

	got, err := Algorithm{Holidays: all}.Forecast(h, day)
	if err != nil {
		t.Fatal(err)
	}

	checkForecast(t, got)
}
