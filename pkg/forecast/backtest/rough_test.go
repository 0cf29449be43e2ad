// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/series"
)

// roughShapes are loads on which weighing methods by their past goes wrong. A shape returns the load of a day and a slot of that day.
func roughShapes(r *rand.Rand) map[string]func(d, slot int) float64 {
	cycle := func(slot int) float64 {
		return (2 - math.Cos(2*math.Pi*float64(slot)/144)) * math.Exp(0.15*r.NormFloat64())
	}
	high := false
	leak := 0.0

	return map[string]func(d, slot int) float64{
		"zeros and rare spikes": func(int, int) float64 {
			if r.Float64() < 0.02 {
				return 5 * r.ExpFloat64()
			}

			return 0
		},
		"a heavy tail":       func(int, int) float64 { return math.Exp(1.5 * r.NormFloat64()) },
		"bursts of all days": func(_, slot int) float64 { return cycle(slot) + 100*math.Pow(r.Float64(), 40) },
		"resets of a counter": func(d, slot int) float64 {
			if d%5 == 3 && slot == 50 {
				return 1e6
			}

			return cycle(slot)
		},
		"no load on weekends": func(d, slot int) float64 {
			if d%7 >= 5 {
				return 0
			}

			return cycle(slot)
		},
		"growth": func(d, slot int) float64 { return cycle(slot) * math.Pow(1.08, float64(d)) },
		"a jump at the end": func(d, slot int) float64 {
			if d >= 18 {
				return 8 * cycle(slot)
			}

			return cycle(slot)
		},
		"a fall at the end": func(d, slot int) float64 {
			if d >= 18 {
				return cycle(slot) / 8
			}

			return cycle(slot)
		},
		"gaps": func(_, slot int) float64 {
			if r.Float64() < 0.4 {
				return series.Gap()
			}

			return cycle(slot)
		},
		"a leak and restarts": func(int, int) float64 {
			leak += 0.01 * r.Float64()

			if r.Float64() < 1.0/300 {
				leak = 0
			}

			return 1 + leak
		},
		"two levels at random": func(int, int) float64 {
			if r.Float64() < 1.0/60 {
				high = !high
			}

			if high {
				return 10 * math.Exp(0.1*r.NormFloat64())
			}

			return math.Exp(0.1 * r.NormFloat64())
		},
		"one bad day a week": func(d, slot int) float64 {
			if d%7 == 4 {
				return 20 * cycle(slot)
			}

			return cycle(slot)
		},
	}
}

// TestAutoOnRoughSeries bounds the loss of every series, whatever its shape, relative to plain.
func TestAutoOnRoughSeries(t *testing.T) {
	const slots, days, seeds = 144, 21, 2
	const most = 1.35
	for name := range roughShapes(rand.New(rand.NewPCG(0, 0))) {
		for seed := range uint64(seeds) {
			shape := roughShapes(rand.New(rand.NewPCG(seed, 11)))[name]
			s := series.Series{Start: time.Date(2025, 3, 3, 0, 0, 0, 0, time.UTC), Step: 10 * time.Minute, Values: make([]float64, days*slots)}
			for i := range s.Values {
				s.Values[i] = shape(i/slots, i%slots)
			}

			r := autoResults(t, name+" "+strconv.FormatUint(seed, 10), s)
			t.Logf("%-28s wape x%.3f pinball x%.3f coverage %.3f", r.Name, r.WAPERatio, r.PinballRatio, r.Coverage)

			if r.Issued != r.Origins || r.Origins == 0 {
				t.Errorf("%s: %d origins issued, want all of %d", r.Name, r.Issued, r.Origins)
			}
			if worst := max(float64(r.WAPERatio), float64(r.PinballRatio)); worst > most {
				t.Errorf("%s: %.3f times plain, want at most %v", r.Name, worst, most)
			}
		}
	}
}

// TestAutoOnNearlyConstantSeries checks that the slots of a model keep small differences between samples: rounded to 1/4096 of their values,
// they made errors of 1.5 times those of plain.
func TestAutoOnNearlyConstantSeries(t *testing.T) {
	for _, noise := range []float64{1e-2, 1e-4, 1e-6} {
		r := rand.New(rand.NewPCG(1, 11))
		s := series.Series{Start: time.Date(2025, 3, 3, 0, 0, 0, 0, time.UTC), Step: time.Minute, Values: make([]float64, 9*1440)}
		for i := range s.Values {
			s.Values[i] = 7 * (1 + noise*r.NormFloat64())
		}

		got := autoResults(t, "nearly constant", s)
		if worst := max(float64(got.WAPERatio), float64(got.PinballRatio)); worst > 1.05 {
			t.Errorf("noise of %g: %.3f times plain, want at most 1.05", noise, worst)
		}
	}
}

// TestStepsHistoriesHorizons forecasts a disturbed load at steps from 15 s to an hour, from histories of an hour to eight weeks, an hour to a
// week ahead: quantiles are finite and in order, and a history that is too short for the method is named.
func TestStepsHistoriesHorizons(t *testing.T) {
	const day = 24 * time.Hour
	algorithm := algorithms(t, registry.Auto)[0]
	for _, step := range []time.Duration{15 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, time.Hour} {
		for _, length := range []time.Duration{time.Hour, day, 3 * day, 14 * day, 56 * day} {
			r := rand.New(rand.NewPCG(uint64(step), uint64(length)))
			s := series.Series{Start: time.Date(2025, 3, 3, 7, 0, 0, 0, time.UTC), Step: step, Values: make([]float64, length/step)}
			for i := range s.Values {
				at := time.Duration(i) * step
				s.Values[i] = (2 - math.Cos(2*math.Pi*at.Hours()/24)) * math.Exp(0.2*r.NormFloat64())
				switch {
				case i > 0 && r.Float64() < 0.05:
					s.Values[i] = []float64{math.NaN(), math.Inf(1), -1, 0}[r.IntN(4)]
				case at > length/2 && at < length/2+length/20:
					s.Values[i] = 0
				}
			}

			for _, horizon := range []time.Duration{time.Hour, 7 * day} {
				f, err := algorithm.Forecast(s, horizon)
				if err != nil || len(f.Values) != forecast.Steps(horizon, step) {
					t.Fatalf("%s of %s, %s ahead: %d values, error %v; want %d", length, step, horizon, len(f.Values), err, forecast.Steps(horizon, step))
				}

				if short := length <= day; short != (f.Reason != "") {
					t.Errorf("%s of %s: reason %q, want one: %t", length, step, f.Reason, short)
				}

				for i, q := range f.Values {
					last := 0.0
					for _, v := range q {
						if !(v >= last && v < 100) {
							t.Fatalf("%s of %s, %s ahead: step %d: %v, want ascending values below 100", length, step, horizon, i, q)
						}

						last = v
					}
				}
			}
		}
	}
}
