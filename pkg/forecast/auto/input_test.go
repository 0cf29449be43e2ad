// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

// officeHours returns days of a load of 2, and of 10 from nine to five by the clock of a zone.
func officeHours(start time.Time, step, length time.Duration, zone *time.Location) series.Series {
	s := series.Series{Start: start, Step: step}
	for i := range int(length / step) {
		v := 2.0
		if hour := s.Time(i).In(zone).Hour(); hour >= 9 && hour < 17 {
			v = 10
		}

		s.Values = append(s.Values, v)
	}

	return s
}

// jumpTime returns the first time at which the median of a forecast is above a level.
func jumpTime(t *testing.T, f forecast.Forecast, level float64) time.Time {
	t.Helper()

	for i, q := range f.Values {
		if q[0] > level {
			return f.Start.Add(time.Duration(i) * f.Step)
		}
	}

	t.Fatalf("no median of the forecast from %s is above %v, want a jump", f.Start, level)
	return time.Time{}
}

// TestForecast_AnyStep checks that a forecast keeps the time of day whatever the step is: exports have steps that are no whole seconds.
func TestForecast_AnyStep(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, step := range []time.Duration{
		time.Minute, 59_999 * time.Millisecond, 60_001 * time.Millisecond, 15_500 * time.Millisecond, 1999 * time.Millisecond, 299_999_999 * time.Microsecond,
	} {
		history := officeHours(start, step, 12*day, time.UTC)
		f, err := Algorithm{}.Forecast(history, day)
		if err != nil {
			t.Fatal(err)
		}

		if late := f.Start.Sub(history.End()); late < -step || late > step {
			t.Errorf("step %s: the forecast starts at %s, want %s", step, f.Start, history.End())
		}

		want := time.Date(2026, 1, 13, 9, 0, 0, 0, time.UTC)
		if got := jumpTime(t, f, 6); got.Sub(want).Abs() > 10*time.Minute {
			t.Errorf("step %s: the median jumps at %s, want %s", step, got, want)
		}
	}
}

// TestForecast_FirstSample checks that the first sample of a history, however small or large, does not decide about the others.
func TestForecast_FirstSample(t *testing.T) {
	history := officeHours(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Minute, 10*day, time.UTC)
	plain, err := Algorithm{}.Forecast(history, day)
	if err != nil {
		t.Fatal(err)
	}

	for _, first := range []float64{5e-324, 1e-320, 1e-35, 1e-20, 1e-9, 0, 1e9, 1e20, 1e29} {
		other := history
		other.Values = append([]float64{first}, history.Values[1:]...)

		f, err := Algorithm{}.Forecast(other, day)
		if err != nil {
			t.Fatal(err)
		}

		for i, q := range f.Values {
			if want := plain.Values[i][0]; math.Abs(q[0]-want) > 0.1*want {
				t.Errorf("first sample %g: the median of step %d is %g, want about %g", first, i, q[0], want)
				break
			}
		}
	}
}

// TestForecast_ScaleOfOneModel checks that a model that follows a load through many orders of magnitude forecasts the present one.
func TestForecast_ScaleOfOneModel(t *testing.T) {
	m := NewModel(time.Minute)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, level := range []float64{1e-30, 1e-10, 1, 1e10, 1e-10} {
		for range 15 * 24 * 60 {
			m.Observe(at, level)
			at = at.Add(time.Minute)
		}

		f, err := m.Forecast(time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Values[0][0]; math.Abs(got-level) > 0.01*level {
			t.Errorf("after two weeks at %g the median is %g, want the level", level, got)
		}
	}
}

// TestForecast_ChangeOfClocks checks that the days around a change of clocks have the opening hour of the zone.
func TestForecast_ChangeOfClocks(t *testing.T) {
	for _, c := range []struct{ zone, origin string }{
		{"Europe/Berlin", "2026-03-28T12:00:00Z"},
		{"Europe/Berlin", "2026-03-29T07:00:00Z"},
		{"Europe/Berlin", "2026-03-30T00:00:00Z"},
		{"Europe/Berlin", "2026-04-02T18:00:00Z"},
		{"Europe/Berlin", "2026-10-24T12:00:00Z"},
		{"Europe/Berlin", "2026-10-25T09:00:00Z"},
		{"Europe/Berlin", "2026-10-27T00:00:00Z"},
		{"America/New_York", "2026-03-08T20:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-05T12:00:00Z"},
		{"Asia/Kathmandu", "2026-04-05T12:00:00Z"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}

		origin, err := time.Parse(time.RFC3339, c.origin)
		if err != nil {
			t.Fatal(err)
		}

		calendar, err := NewCalendar(nil, zone)
		if err != nil {
			t.Fatal(err)
		}

		history := officeHours(origin.Add(-13*day), time.Minute, 13*day, zone)
		f, err := Algorithm{Holidays: calendar}.Forecast(history, 2*day)
		if err != nil {
			t.Fatal(err)
		}

		wrong := 0
		for i, q := range f.Values {
			if want := officeHours(f.Start.Add(time.Duration(i)*f.Step), f.Step, f.Step, zone).Values[0]; math.Abs(q[0]-want) > 1 {
				wrong++
			}
		}

		if wrong > 12 {
			t.Errorf("%s from %s: the median of %d of %d minutes is wrong, want at most 12", c.zone, c.origin, wrong, len(f.Values))
		}

		for i, q := range f.Highs {
			at := f.Start.Truncate(forecast.HighStep).Add(time.Duration(i) * forecast.HighStep)
			if want := officeHours(at, forecast.HighStep, forecast.HighStep, zone).Values[0]; math.Abs(q[0]-want) > 1 {
				t.Errorf("%s from %s: the median of the highs at %s is %v, want %v", c.zone, c.origin, at.In(zone), q[0], want)
				break
			}
		}
	}
}

// TestForecast_SparseReason checks that the reason of a history with gaps does not ask for the length that it has.
func TestForecast_SparseReason(t *testing.T) {
	history := officeHours(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Minute, 7*day, time.UTC)
	for i := range history.Values {
		if history.Time(i).Hour()%4 != 0 {
			history.Values[i] = series.Gap()
		}
	}

	f, err := Algorithm{}.Forecast(history, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(f.Reason, "half of its time") || strings.Contains(f.Reason, "needed") {
		t.Errorf("Reason = %q, want the gaps and not the length of the history", f.Reason)
	}
}
