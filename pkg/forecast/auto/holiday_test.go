// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/internal/families"
	"crane.io/crane/pkg/series"
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
		y, median, upper := actual[i], f.Values[i].At(0.5), f.Values[i].At(0.95)
		t.errors += math.Abs(y - median)
		t.pinball += max(0.95*(y-upper), 0.05*(upper-y))
		t.points++
		if y <= upper {
			t.covered++
		}
	}
}

// withoutHolidays is the tuning with nothing done about holidays.
func withoutHolidays() tuning {
	t := defaultTuning()
	t.exceptional, t.oddity, t.surprise, t.wholeDayRepeats = 1, 0, math.Inf(1), t.seasonRepeats
	return t
}

// TestHolidays forecasts weeks in which now and then a weekday is as quiet as a weekend.
func TestHolidays(t *testing.T) {
	const step, perDay = 15 * time.Minute, 96
	var weeks families.Family
	for _, f := range families.All() {
		if f.Name == "weeks with holidays" {
			weeks = f
		}
	}
	type outcome struct{ all, normal, after, holiday tally }
	run := func(history int, tune tuning) outcome {
		var o outcome
		for seed := range uint64(4) {
			s := weeks.Make(200+seed, 63, step)
			quiet := func(d int) bool {
				sum := 0.0
				for _, v := range s.Values[d*perDay : (d+1)*perDay] {
					sum += v
				}
				return sum/perDay < 45
			}
			at := func(origin int) forecast.Forecast {
				m := fit(series.Series{Start: s.Time(origin - history*perDay), Step: step, Values: s.Values[origin-history*perDay : origin]})
				f, err := m.forecast(perDay, tune, Calendar{})
				if err != nil {
					t.Fatal(err)
				}
				return f
			}
			for d := 36; d < 62; d++ {
				midnight := d * perDay
				f := at(midnight)
				o.all.add(s.Values[midnight:], f, 0, perDay)
				weekday := s.Time(midnight).Weekday()
				switch {
				case weekday == time.Saturday || weekday == time.Sunday:
				case quiet(d):
					noon := midnight + perDay/2
					o.holiday.add(s.Values[noon:], at(noon), 0, perDay/2)
				case quiet(d - 7):
					o.after.add(s.Values[midnight:], f, 0, perDay)
				default:
					o.normal.add(s.Values[midnight:], f, 0, perDay)
				}
			}
		}
		return o
	}
	for _, history := range []int{14, 35} {
		with, without := run(history, defaultTuning()), run(history, withoutHolidays())
		for name, c := range map[string]struct{ with, without tally }{
			"all": {with.all, without.all}, "normal days": {with.normal, without.normal},
			"a week after a holiday": {with.after, without.after}, "noon of a holiday": {with.holiday, without.holiday},
		} {
			if c.with.days < 5 {
				t.Fatalf("%s: %d days are too few", name, c.with.days)
			}
			t.Logf("%2d days, %-22s n %3d: errors %.2f (without %.2f), loss %.3f (%.3f), coverage %.3f (%.3f)", history, name,
				c.with.days, c.with.errors/c.with.points, c.without.errors/c.without.points, c.with.pinball/c.with.points,
				c.without.pinball/c.without.points, c.with.covered/c.with.points, c.without.covered/c.without.points)
			if c.with.errors > 1.02*c.without.errors || c.with.pinball > 1.02*c.without.pinball {
				t.Errorf("%d days, %s: worse than without", history, name)
			}
		}
		if c := with.all.covered / with.all.points; c < 0.92 || c > 0.98 {
			t.Errorf("%d days: coverage %.3f", history, c)
		}
		// The rest of a holiday is known by noon: a weekday as forecast would be wrong by ten times as much.
		if with.holiday.errors > without.holiday.errors/4 {
			t.Errorf("%d days: a holiday is not noticed by noon", history)
		}
		each := func(t tally) float64 { return t.errors / t.points }
		if history > historyDays && each(with.after) > 1.3*each(with.normal) {
			t.Errorf("%d days: the same weekday a week later is forecast worse than others", history)
		}
	}
}

// TestMoreWeeksHelp checks that five weeks forecast a weekday better than two.
func TestMoreWeeksHelp(t *testing.T) {
	const step, perDay = 15 * time.Minute, 96
	var five, two tally
	for _, f := range families.All() {
		if f.Name != "a shape for each weekday" {
			continue
		}
		for seed := range uint64(4) {
			s := f.Make(300+seed, 49, step)
			for d := 36; d < 48; d++ {
				for days, into := range map[int]*tally{14: &two, 36: &five} {
					from, to := (d-days)*perDay, d*perDay
					got, err := fit(series.Series{Start: s.Time(from), Step: step, Values: s.Values[from:to]}).Forecast(day)
					if err != nil {
						t.Fatal(err)
					}
					into.add(s.Values[to:], got, 0, perDay)
				}
			}
		}
	}
	t.Logf("errors %.2f with five weeks, %.2f with two; loss %.3f and %.3f", five.errors/five.points, two.errors/two.points,
		five.pinball/five.points, two.pinball/two.points)
	if five.days == 0 || five.errors > 0.95*two.errors || five.pinball > 0.95*two.pinball {
		t.Error("the older weeks do not help")
	}
}

// TestShiftIsNoHoliday checks that a day at a new level is not treated as a day of another kind.
func TestShiftIsNoHoliday(t *testing.T) {
	h := history(t, "daily")
	cut := len(h.Values) - 6*60
	for i := range h.Values[cut:] {
		h.Values[cut+i] *= 4
	}
	m := fit(h)
	g := newGrid(m, 96, m.recent.count)
	o := newGate(newBanks(m, g, defaultTuning()), m.layout.unit)
	if o.today.weight > 0.01 {
		t.Errorf("days that are like nothing before are followed with weight %.2f", o.today.weight)
	}
	for k, exceptional := range o.exceptional {
		if exceptional {
			t.Errorf("the day %d days ago is taken for a holiday", k+1)
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
		t.Error("known holidays are not forecast as such")
	}
	if c := rest.covered / rest.points; rest.errors > 1.02*restWithout.errors || c < 0.92 {
		t.Error("other days are worse than without")
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
			t.Errorf("%s: %v", at, got)
		}
	}
	if (Calendar{}).Holiday(monday) {
		t.Error("no calendar has a holiday")
	}
	for _, bad := range []string{"tomorrow", "2026-02-30", ""} {
		if _, err := NewCalendar([]string{bad}, nil); err == nil {
			t.Errorf("%q is taken for a date", bad)
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
