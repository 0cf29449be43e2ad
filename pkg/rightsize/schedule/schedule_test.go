// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
)

var midnight = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// forecastOf returns a forecast whose quantiles lie a share of the median apart.
func forecastOf(start time.Time, step time.Duration, n int, spread float64, median func(i int) float64) forecast.Forecast {
	f := forecast.Forecast{Start: start, Step: step, Values: make([]forecast.Quantiles, n), Model: "test"}
	for i := range f.Values {
		m := median(i)
		for l := range f.Values[i] {
			f.Values[i][l] = m * (1 + spread*float64(l))
		}
	}

	return f
}

// plateau is 1 at night and 4 from 9:00 to 17:00, in minutes.
func plateau(i int) float64 {
	if hour := i / 60 % 24; hour >= 9 && hour < 17 {
		return 4
	}

	return 1
}

func mustPlan(t *testing.T, f forecast.Forecast, before float64, s Settings) Plan {
	t.Helper()

	p, err := New(f, before, s)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

func TestUpAtOnceAndDownInSteps(t *testing.T) {
	p := mustPlan(t, forecastOf(midnight, time.Minute, 1440, 0.05, plateau), 0, DefaultSettings())
	if len(p.Steps) != 4 || p.Changes != 3 {
		t.Fatalf("%d changes: %+v", p.Changes, p.Steps)
	}

	for i, hour := range []int{0, 9, 17, 18} {
		if !p.Steps[i].From.Equal(midnight.Add(time.Duration(hour) * time.Hour)) {
			t.Errorf("step %d begins at %v, want %d:00", i, p.Steps[i].From, hour)
		}
	}

	if up, down := p.Steps[1].Request/p.Steps[0].Request, p.Steps[2].Request/p.Steps[1].Request; up < 3 || down < 0.5-1e-9 || down > 0.6 {
		t.Errorf("up by %v, down by %v: %+v", up, down, p.Steps)
	}

	for i, want := range []string{"holds the forecast", "up at once from", "by the most that one step gives up", "down from"} {
		if !strings.Contains(p.Steps[i].Reason, want) {
			t.Errorf("step %d: %q does not say %q", i, p.Steps[i].Reason, want)
		}
	}

	if p.Slack <= 0 || p.Slack > 0.4 || p.Risk > 0.04 {
		t.Errorf("slack %v, risk %v", p.Slack, p.Risk)
	}
}

func TestPriceDecidesTheLevel(t *testing.T) {
	last := 0.0
	for _, price := range []float64{0.5, 2, 10, 100} {
		s := DefaultSettings()
		s.Price = price

		p := mustPlan(t, forecastOf(midnight, time.Minute, 1440, 0.3, func(int) float64 { return 2 }), 0, s)
		if len(p.Steps) != 1 || p.Steps[0].Request < last || p.Steps[0].Request < 2 {
			t.Errorf("price %v: %+v after %v", price, p.Steps, last)
		}

		last = p.Steps[0].Request
	}
}

func TestStaysWhereNothingIsGained(t *testing.T) {
	f := forecastOf(midnight, time.Minute, 1440, 0.05, func(int) float64 { return 2 })
	before := mustPlan(t, f, 0, DefaultSettings()).Steps[0].Request
	if p := mustPlan(t, f, before*1.03, DefaultSettings()); p.Changes != 0 || !strings.HasPrefix(p.Steps[0].Reason, "stays") {
		t.Errorf("%d changes: %+v", p.Changes, p.Steps)
	}

	s := DefaultSettings()
	s.Changes = 0
	if p := mustPlan(t, forecastOf(midnight, time.Minute, 1440, 0.05, plateau), 0, s); p.Changes != 0 || len(p.Steps) != 1 || p.Steps[0].Request < 4 {
		t.Errorf("%d changes where none is allowed: %+v", p.Changes, p.Steps)
	}
}

// checkPlan verifies the properties of every plan.
func checkPlan(t *testing.T, p Plan, f forecast.Forecast, before float64, s Settings) {
	t.Helper()

	changes := 0
	last := before
	at := f.Start
	for i, step := range p.Steps {
		if !step.From.Equal(at) || !(step.Request >= 0) || math.IsInf(step.Request, 0) || !(step.Risk >= 0 && step.Risk <= 1+1e-9) || step.Reason == "" {
			t.Fatalf("step %d: %+v", i, step)
		}

		if length := step.To.Sub(step.From); length < MinStep && len(p.Steps) > 1 {
			t.Fatalf("step %d takes %v", i, length)
		}

		if last > 0 && step.Request != last {
			changes++
			ratio := step.Request / last
			if ratio > 1 && ratio < 1.1-1e-6 || ratio < 1 && (ratio > 0.9+1e-6 || ratio < 1-float64(s.MaxDrop)-1e-6) {
				t.Fatalf("step %d moves by %v", i, ratio)
			}
		}

		last, at = step.Request, step.To
	}

	if changes != p.Changes || changes > s.Changes || math.IsNaN(p.Slack+p.Risk) {
		t.Fatalf("%d changes, %d said, %d allowed; slack %v, risk %v", changes, p.Changes, s.Changes, p.Slack, p.Risk)
	}
}

func TestPlansKeepTheirBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	steps := []time.Duration{15 * time.Second, time.Minute, 5 * time.Minute, 7 * time.Minute, time.Hour}
	for range 120 {
		step := steps[rng.IntN(len(steps))]
		scale := math.Pow(10, 12*rng.Float64()-6)
		level := 1.0
		f := forecastOf(midnight.Add(time.Duration(rng.IntN(86400))*time.Second), step, 1+rng.IntN(int(30*time.Hour/step)), rng.Float64(), func(int) float64 {
			if rng.IntN(50) == 0 {
				level = math.Exp(2 * rng.NormFloat64())
			}

			return level * scale
		})

		s := DefaultSettings()
		s.Changes = rng.IntN(MaxChanges + 1)
		s.Price = math.Exp(3 * rng.NormFloat64())
		before := 0.0
		if rng.IntN(3) > 0 && s.Changes > 0 {
			before = scale * math.Exp(2*rng.NormFloat64())
		}

		checkPlan(t, mustPlan(t, f, before, s), f, before, s)
	}
}

func TestPlansAreScaleFree(t *testing.T) {
	one := mustPlan(t, forecastOf(midnight, time.Minute, 1440, 0.1, plateau), 3, DefaultSettings())
	million := mustPlan(t, forecastOf(midnight, time.Minute, 1440, 0.1, func(i int) float64 { return 1e6 * plateau(i) }), 3e6, DefaultSettings())
	if len(one.Steps) != len(million.Steps) {
		t.Fatalf("%+v, %+v", one.Steps, million.Steps)
	}

	for i := range one.Steps {
		if math.Abs(million.Steps[i].Request/one.Steps[i].Request/1e6-1) > 1e-9 {
			t.Errorf("step %d: %v, %v", i, one.Steps[i].Request, million.Steps[i].Request)
		}
	}
}

func TestOddForecasts(t *testing.T) {
	if _, err := New(forecast.Forecast{}, 1, DefaultSettings()); !errors.Is(err, ErrForecast) {
		t.Errorf("an empty forecast: %v", err)
	}

	for name, c := range map[string]struct {
		f      forecast.Forecast
		before float64
	}{
		"zero":           {forecastOf(midnight, time.Minute, 1440, 0, func(int) float64 { return 0 }), 0},
		"zero after use": {forecastOf(midnight, time.Minute, 1440, 0, func(int) float64 { return 0 }), 5},
		"NaN":            {forecastOf(midnight, time.Minute, 1440, 0, func(int) float64 { return math.NaN() }), 0},
		"constant":       {forecastOf(midnight, time.Minute, 1440, 0, func(int) float64 { return 1 }), 0.99},
		"far below":      {forecastOf(midnight, time.Minute, 1440, 0, func(int) float64 { return 1 }), 1e29},
		"far above":      {forecastOf(midnight, time.Minute, 1440, 0, func(int) float64 { return 1e29 }), 1},
		"odd before":     {forecastOf(midnight, time.Minute, 1440, 0, func(int) float64 { return 1 }), math.Inf(1)},
		"long steps":     {forecastOf(midnight, 24*time.Hour, 3, 0.1, func(int) float64 { return 1 }), 1},
		"one step":       {forecastOf(midnight, time.Minute, 1, 0.1, func(int) float64 { return 1 }), 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustPlan(t, c.f, c.before, DefaultSettings())
			if math.IsInf(c.before, 0) {
				c.before = 0
			}

			checkPlan(t, p, c.f, c.before, DefaultSettings())
		})
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"price": func(s *Settings) { s.Price = math.NaN() }, "margin": func(s *Settings) { s.Margin = -1 },
		"changes a day": func(s *Settings) { s.Changes = 9 }, "reactions a day": func(s *Settings) { s.Reactions = 7 },
		"delay": func(s *Settings) { s.Delay = time.Minute }, "largest drop": func(s *Settings) { s.MaxDrop = s.MinMove },
	} {
		s := DefaultSettings()
		change(&s)

		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}

	if err := DefaultSettings().Validate(); err != nil {
		t.Error(err)
	}
}

func BenchmarkPlan(b *testing.B) {
	f := forecastOf(midnight, time.Minute, 1440, 0.2, plateau)
	b.ReportAllocs()

	for b.Loop() {
		if _, err := New(f, 3, DefaultSettings()); err != nil {
			b.Fatal(err)
		}
	}
}
