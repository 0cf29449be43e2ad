// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package families generates seeded synthetic series of typical and of odd workload shapes, and reads recorded ones, for tests and
// benchmarks of forecasting, sizing and scaling.
package families

import (
	"math"
	"math/rand/v2"
	"time"

	"crane.io/crane/pkg/series"
)

// Family is a kind of series.
type Family struct {
	// Name describes the shape.
	Name string
	// Shifts marks level shifts, which cannot be forecast; figures of such families are reported separately.
	Shifts bool
	value  func(s *state, t time.Time, minute int) float64
}

// state is the state of a family from one minute to the next.
type state struct {
	*rand.Rand
	days   int
	level  float64
	until  int // minute at which the current burst, ramp or level ends
	since  int // minute at which it began
	height float64
}

func (s *state) noise(sigma float64) float64 { return math.Exp(sigma*s.NormFloat64() - sigma*sigma/2) }

// start is a Wednesday, midnight UTC.
func start() time.Time { return time.Date(2025, time.October, 1, 0, 0, 0, 0, time.UTC) }

// Make returns a series of a number of days at a step.
func (f Family) Make(seed uint64, days int, step time.Duration) series.Series {
	s := &state{Rand: rand.New(rand.NewPCG(seed, 1)), days: days, level: 1}
	out := series.Series{Start: start(), Step: step}
	per := max(1, int(step/time.Minute))
	count := int(time.Duration(days) * 24 * time.Hour / step)

	out.Values = make([]float64, count)
	for i := range out.Values {
		at := out.Time(i)
		minute := int(at.Sub(out.Start) / time.Minute)
		sum := 0.0
		for j := range per {
			sum += max(0, f.value(s, at.Add(time.Duration(j)*time.Minute), minute+j))
		}

		out.Values[i] = sum / float64(per)
	}

	return out
}

// wave is a smooth daily cycle between 0 and 1 that peaks at a given hour.
func wave(t time.Time, peak float64, period time.Duration) float64 {
	phase := t.Sub(start()).Hours()/period.Hours() - peak/24
	return (1 + math.Cos(2*math.Pi*phase)) / 2
}

func weekend(t time.Time) bool { return t.Weekday() == time.Saturday || t.Weekday() == time.Sunday }

// All returns every family.
func All() []Family {
	return []Family{
		// Values are called in order of time: a state may carry a level from one minute to the next.
		{Name: "daily", value: func(s *state, t time.Time, _ int) float64 {
			return (20 + 80*wave(t, 14, 24*time.Hour)) * s.noise(0.1)
		}},
		{Name: "daily drifting", value: func(s *state, t time.Time, m int) float64 {
			if m%1440 == 0 {
				s.level *= s.noise(0.15)
			}

			return s.level * (10 + 50*wave(t, 9, 24*time.Hour)) * s.noise(0.08)
		}},
		{Name: "weekday and weekend", value: func(s *state, t time.Time, _ int) float64 {
			high := 100.0
			if weekend(t) {
				high = 25
			}

			return (10 + high*math.Pow(wave(t, 11, 24*time.Hour), 2)) * s.noise(0.12)
		}},
		{Name: "holiday", value: func(s *state, t time.Time, m int) float64 {
			high := 100.0
			if weekend(t) || m/1440 >= 8 && m/1440 <= 11 {
				high = 30
			}

			return (10 + high*wave(t, 11, 24*time.Hour)) * s.noise(0.12)
		}},
		{Name: "weeks with holidays", value: holidays},
		{Name: "a shape for each weekday", value: shapes},
		{Name: "plateau that saturates", value: plateau},
		{Name: "nightly batch", value: batch},
		{Name: "bursts at irregular minutes", value: bursts},
		{Name: "hourly cron", value: func(s *state, _ time.Time, m int) float64 {
			if m%60 < 4 {
				return 3 * s.noise(0.2)
			}

			return 0.3 * s.noise(0.1)
		}},
		{Name: "near constant", value: func(s *state, _ time.Time, _ int) float64 { return 0.004 * s.noise(0.12) }},
		{Name: "heavy tail", value: func(s *state, _ time.Time, _ int) float64 { return 0.2 * s.noise(0.8) }},
		{Name: "ramps and restarts", value: ramps},
		{Name: "random walk", value: func(s *state, _ time.Time, m int) float64 {
			if m%10 == 0 {
				s.level = min(20, max(0.05, s.level*s.noise(0.04)))
			}

			return s.level * s.noise(0.1)
		}},
		{Name: "idle", value: func(s *state, _ time.Time, _ int) float64 {
			if s.Float64() < 0.01 {
				return 0.5 * s.noise(0.5)
			}

			return 0
		}},
		{Name: "trend", value: func(s *state, t time.Time, m int) float64 {
			return (1 + float64(m)/1440*0.15) * (5 + 5*wave(t, 15, 24*time.Hour)) * s.noise(0.08)
		}},
		{Name: "every 6 hours", value: func(s *state, t time.Time, _ int) float64 {
			return (5 + 20*wave(t, 3, 6*time.Hour)) * s.noise(0.1)
		}},
		{Name: "every 36 hours", value: func(s *state, t time.Time, _ int) float64 {
			return (5 + 20*math.Pow(wave(t, 3, 36*time.Hour), 2)) * s.noise(0.1)
		}},
		{Name: "level steps", Shifts: true, value: levels},
		{Name: "one jump", Shifts: true, value: func(s *state, t time.Time, m int) float64 {
			v := (2 + wave(t, 12, 24*time.Hour)) * s.noise(0.1)
			if m > 1440*s.days*2/3 {
				v *= 6
			}

			return v
		}},
	}
}

// holidays has quiet weekends, and now and then a weekday that is as quiet.
func holidays(s *state, t time.Time, m int) float64 {
	if m%1440 == 0 {
		s.height = 100
		if weekend(t) || s.Float64() < 0.1 {
			s.height = 25
		}
	}

	return (15 + s.height*wave(t, 13, 24*time.Hour)) * s.noise(0.1)
}

// shapes peaks at another hour on each weekday, and not as high on each of its kind.
func shapes(s *state, t time.Time, m int) float64 {
	if m%1440 == 0 {
		s.height = s.noise(0.2)
	}

	peak := []float64{3, 9, 16, 11, 20, 13, 6}[t.Weekday()]
	high := []float64{20, 80, 50, 100, 60, 30, 40}[t.Weekday()]
	return s.height * (10 + high*math.Pow(wave(t, peak, 24*time.Hour), 4)) * s.noise(0.1)
}

func plateau(s *state, t time.Time, m int) float64 {
	if m%1440 == 0 {
		s.until = m + 360 + s.IntN(120)
		s.height = 1 + 0.2*s.Float64()
		if weekend(t) {
			s.until += 240
		}
	}

	if m < s.until {
		return min(530, 525*s.height*s.noise(0.05))
	}

	return 40 * s.noise(0.3)
}

func batch(s *state, _ time.Time, m int) float64 {
	if m%1440 == 0 {
		s.since = m + 60 + s.IntN(20)
		s.until = s.since + 100 + s.IntN(60)
		s.height = 8 + 6*s.Float64()
	}

	if m >= s.since && m < s.until {
		return s.height * s.noise(0.2)
	}

	return 1.2 * s.noise(0.03)
}

func bursts(s *state, _ time.Time, m int) float64 {
	if m >= s.until && s.Float64() < 1.0/200 {
		s.until = m + 3 + s.IntN(20)
		s.height = 2 + 6*s.Float64()
	}

	if m < s.until {
		return s.height * s.noise(0.2)
	}

	return 0.5 * s.noise(0.15)
}

func ramps(s *state, _ time.Time, m int) float64 {
	if m >= s.until {
		s.since = m + 300 + s.IntN(1500)
		s.until = s.since + 300 + s.IntN(600)
	}

	base := 0.6
	if m > s.since {
		base *= 1 + float64(m-s.since)/250
	}

	return base * s.noise(0.06)
}

func levels(s *state, _ time.Time, m int) float64 {
	if m >= s.until {
		s.until = m + 1440 + s.IntN(4*1440)
		s.level = 0.1 + 2*s.Float64()
	}

	if s.Float64() < 0.003 {
		return s.level * 3
	}

	return s.level * s.noise(0.05)
}
