// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast/baseline"
	"crane.io/crane/pkg/series"
)

// oneDay multiplies the load of day 12.
func oneDay(by float64) func(d, slot int) float64 {
	return func(d, _ int) float64 {
		if d == 12 {
			return by
		}

		return 1
	}
}

// TestDisturbedDays forecasts the days after outages, zeros and single bad days, and bounds the losses relative to
// plain: a method that is chosen by one such day has been 15 times as bad.
func TestDisturbedDays(t *testing.T) {
	const step, perDay, days = 5 * time.Minute, 288, 18
	for name, c := range map[string]struct {
		// factor is by what the load of a day is multiplied.
		factor func(d, slot int) float64
		// from and to are the days that are forecast.
		from, to int
		// wape and pinball are the largest ratios to plain, covered is the least share below the 0.95 quantile.
		wape, pinball, covered float64
	}{
		"the end of an outage of two days": {func(d, _ int) float64 {
			if d == 12 || d == 13 {
				return 0
			}

			return 1
		}, 14, 14, 1.05, 1.35, 0.85},
		"the days after an outage": {func(d, _ int) float64 {
			if d == 12 || d == 13 {
				return 0
			}

			return 1
		}, 15, 17, 1.05, 1.05, 0.9},
		"an outage of some hours before the origin": {func(d, slot int) float64 {
			if d == 13 && slot > 260 {
				return 0
			}

			return 1
		}, 14, 14, 1.05, 1.35, 0.8},
		// The forecast follows a changed day in part: it cannot be known whether the change stays.
		"the day after a high day":        {oneDay(6), 13, 13, 9, 9, 0.9},
		"the second day after a high day": {oneDay(6), 14, 17, 1.05, 1.6, 0.9},
		"the day after a low day":         {oneDay(0.1), 13, 13, 9, 9, 0.5},
		"the second day after a low day":  {oneDay(0.1), 14, 17, 1.1, 1.1, 0.9},
		"two days after a jump that stays": {func(d, _ int) float64 {
			if d >= 12 {
				return 6
			}

			return 1
		}, 14, 17, 0.5, 1.5, 0.9},
		"zeros but for a run each night": {func(d, slot int) float64 {
			if slot < 24 || slot > 36 {
				return 0
			}

			return 1
		}, 10, 17, 1.05, 1.05, 0.9},
		"zeros for a week, then load": {func(d, _ int) float64 {
			if d < 10 {
				return 0
			}

			return 1
		}, 12, 17, 0.5, 1.6, 0.9},
	} {
		t.Run(name, func(t *testing.T) {
			var own, plain figures
			for seed := range uint64(5) {
				source := rand.New(rand.NewPCG(seed, 9))
				s := series.Series{Start: monday, Step: step, Values: make([]float64, days*perDay)}
				for i := range s.Values {
					shape := 2 + math.Sin(2*math.Pi*float64(i%perDay)/perDay)
					s.Values[i] = shape * c.factor(i/perDay, i%perDay) * math.Exp(0.15*source.NormFloat64())
				}

				for d := c.from; d <= c.to; d++ {
					past := series.Series{Start: s.Time((d - min(d, 14)) * perDay), Step: step, Values: s.Values[(d-min(d, 14))*perDay : d*perDay]}
					for algorithm, sums := range map[string]*figures{"auto": &own, "plain": &plain} {
						f, err := baseline.Plain{}.Forecast(past, day)
						if algorithm == "auto" {
							f, err = Algorithm{}.Forecast(past, day)
						}

						if err != nil {
							t.Fatal(err)
						}

						sums.add(s.Values[d*perDay:(d+1)*perDay], func(i int) float64 { return f.Values[i].At(0.5) },
							func(i int) float64 { return f.Values[i].At(0.95) })
					}
				}
			}

			wape := own.errors / plain.errors
			pinball := own.pinball / plain.pinball
			covered := own.covered / own.points
			t.Logf("errors %.3f and loss %.3f of plain, coverage %.3f (plain %.3f)", wape, pinball, covered, plain.covered/plain.points)

			if wape > c.wape || pinball > c.pinball || covered < c.covered {
				t.Errorf("want at most %v and %v, at least %v", c.wape, c.pinball, c.covered)
			}
		})
	}
}

// TestLevelsAreCalibrated checks the share of samples below each quantile, on noise around a daily cycle and at horizons
// from an hour to a week.
func TestLevelsAreCalibrated(t *testing.T) {
	h := history(t, "daily")
	long := series.Series{Start: h.Start, Step: h.Step, Values: append(append([]float64(nil), h.Values...), h.Values...)}
	n := len(h.Values)
	for _, horizon := range []time.Duration{time.Hour, 6 * time.Hour, day, 7 * day} {
		f, err := (Algorithm{}).Forecast(series.Series{Start: h.Start, Step: h.Step, Values: long.Values[:n]}, horizon)
		if err != nil {
			t.Fatal(err)
		}

		checkForecast(t, f)
		if horizon < day {
			continue // too few samples for a share
		}

		for l, level := range []float64{0.5, 0.75, 0.9, 0.95, 0.99} {
			below := 0
			for i, q := range f.Values {
				if long.Values[n+i] <= q[l] {
					below++
				}
			}

			if share := float64(below) / float64(len(f.Values)); math.Abs(share-level) > 0.06 {
				t.Errorf("%s: %.3f of the samples are below the %v quantile, want that share to 0.06", horizon, share, level)
			}
		}
	}
}
