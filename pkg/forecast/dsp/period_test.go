// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dsp

import (
	"fmt"
	"math"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

// TestForecast_Period checks the period of daily and weekly loads, of the shortest histories too, and at steps that divide no day.
func TestForecast_Period(t *testing.T) {
	noise := func(i int) float64 { return 0.05 * math.Sin(float64(i*i%977)) }
	daily := func(at time.Time) float64 {
		return 2 + math.Sin(2*math.Pi*float64(at.Unix()%86400)/86400)
	}
	weekly := func(at time.Time) float64 {
		if weekday := at.Weekday(); weekday == time.Saturday || weekday == time.Sunday {
			return 1
		}

		return 2 + 3*math.Max(0, math.Sin(2*math.Pi*float64(at.Unix()%86400)/86400))
	}

	threeDays := func(at time.Time) float64 { return 2 + math.Sin(2*math.Pi*float64(at.Unix()%259200)/259200) }
	loads := map[string]func(time.Time) float64{"daily": daily, "weekly": weekly, "three days": threeDays}

	for _, c := range []struct {
		load   string
		step   time.Duration
		length time.Duration
		want   time.Duration
	}{
		{"weekly", time.Minute, 14 * day, 7 * day},
		{"weekly", time.Minute, 15 * day, 7 * day},
		{"weekly", 5 * time.Minute, 14 * day, 7 * day},
		{"weekly", time.Hour, 14 * day, 7 * day},
		{"weekly", time.Hour, 21 * day, 7 * day},
		{"weekly", 59_999 * time.Millisecond, 14*day + time.Hour, 7 * day},
		// Less than two weeks show no week, and six days are none.
		{"weekly", time.Minute, 14*day - time.Hour, day},
		{"weekly", time.Minute, 13 * day, day},
		{"weekly", 5 * time.Minute, 11 * day, day},
		{"weekly", time.Hour, 9 * day, day},
		{"three days", time.Hour, 13 * day, 3 * day},
		{"daily", time.Minute, 2 * day, day},
		{"daily", time.Minute, 3 * day, day},
		{"daily", 59_999 * time.Millisecond, 4 * day, day},
		{"daily", 7 * time.Minute, 5 * day, day},
		{"daily", time.Hour, 2 * day, day},
	} {
		t.Run(fmt.Sprint(c.load, " ", c.step, " ", c.length), func(t *testing.T) {
			s := series.Series{Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Step: c.step}
			for i := range int(c.length / c.step) {
				s.Values = append(s.Values, loads[c.load](s.Time(i))+noise(i))
			}

			a, err := New(Options{SampleInterval: c.step.String(), HistoryLength: "30d"})
			if err != nil {
				t.Fatal(err)
			}

			f, err := a.Forecast(s, day)
			if err != nil {
				t.Fatal(err)
			}
			if (f.Period - c.want).Abs() > c.step {
				t.Errorf("Forecast has the period %s (%s), want %s", f.Period, f.Reason, c.want)
			}
		})
	}
}
