// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package families

import (
	"math"
	"math/rand/v2"
	"time"

	"crane.io/crane/pkg/series"
)

// Odd returns series by name that are unlike those of clusters on which rules were chosen, from three days to eight weeks. They start on a Monday.
func Odd() map[string]series.Series {
	out := map[string]series.Series{}
	for name, shape := range oddShapes() {
		r := rand.New(rand.NewPCG(3, 17))
		s := series.Series{Start: time.Date(2025, 3, 3, 0, 0, 0, 0, time.UTC), Step: shape.step}
		s.Values = make([]float64, int(time.Duration(shape.days)*24*time.Hour/shape.step))
		for i := range s.Values {
			s.Values[i] = shape.load(r, s.Time(i).Sub(s.Start).Hours())
		}

		out[name] = s
	}

	return out
}

// oddShape is a load by time; hour is the number of hours since the start.
type oddShape struct {
	step time.Duration
	days int
	load func(r *rand.Rand, hour float64) float64
}

func oddShapes() map[string]oddShape {
	daily := func(r *rand.Rand, hour float64) float64 {
		return (2 - math.Cos(2*math.Pi*hour/24)) * math.Exp(0.1*r.NormFloat64())
	}
	scaled := func(factor float64) func(*rand.Rand, float64) float64 {
		return func(r *rand.Rand, hour float64) float64 { return factor * daily(r, hour) }
	}

	changing := func(change, before, afterward float64) func(*rand.Rand, float64) float64 {
		return func(r *rand.Rand, hour float64) float64 {
			if hour < change {
				return before * daily(r, hour)
			}

			return afterward * daily(r, hour)
		}
	}

	const step = 5 * time.Minute
	return map[string]oddShape{
		"bursts": {step, 7, func(r *rand.Rand, hour float64) float64 {
			if r.Float64() < 0.03 {
				return 20 * daily(r, hour)
			}

			return daily(r, hour)
		}},
		"sparse": {step, 7, func(r *rand.Rand, _ float64) float64 {
			if r.Float64() < 0.1 {
				return 5 * r.ExpFloat64()
			}

			return 0
		}},
		"weeks with a holiday": {step, 16, func(r *rand.Rand, hour float64) float64 {
			if d := int(hour / 24); d%7 >= 5 || d == 10 {
				return 0.2 * daily(r, hour)
			}

			return daily(r, hour)
		}},
		"a rise":   {step, 7, changing(100, 1, 5)},
		"a fall":   {step, 7, changing(100, 5, 1)},
		"a trend":  {step, 7, func(r *rand.Rand, hour float64) float64 { return daily(r, hour) * math.Exp(hour/72) }},
		"constant": {step, 5, func(*rand.Rand, float64) float64 { return 3 }},
		"an outage": {step, 7, func(r *rand.Rand, hour float64) float64 {
			if hour > 90 && hour < 101 {
				return 0
			}

			return daily(r, hour)
		}},
		"gaps": {step, 7, func(r *rand.Rand, hour float64) float64 {
			switch u := r.Float64(); {
			case u < 0.01:
				return []float64{math.Inf(1), -1}[r.IntN(2)]
			case u < 0.4 || hour > 80 && hour < 92:
				return series.Gap()
			}

			return daily(r, hour)
		}},
		"a gap each night": {step, 9, func(r *rand.Rand, hour float64) float64 {
			if math.Mod(hour, 24) < 12 {
				return series.Gap()
			}

			return daily(r, hour)
		}},
		"a jump before a gap each day": {step, 9, func(r *rand.Rand, hour float64) float64 {
			switch h := math.Mod(hour, 24); {
			case h >= 12:
				return series.Gap()
			case h > 8:
				return 10 * daily(r, hour)
			}

			return daily(r, hour)
		}},
		"one value of a counter that was reset": {step, 7, func(r *rand.Rand, hour float64) float64 {
			if hour == 75 {
				return 1e12
			}

			return daily(r, hour)
		}},
		"one that starts": {step, 7, func(r *rand.Rand, hour float64) float64 {
			if hour < 90 {
				return series.Gap()
			}

			return daily(r, hour)
		}},
		"one that stops": {step, 7, changing(100, 1, 0)},
		"negative values": {step, 7, func(r *rand.Rand, hour float64) float64 {
			if r.Float64() < 0.2 {
				return -daily(r, hour)
			}

			return daily(r, hour)
		}},
		"tiny values": {step, 5, scaled(1e-12)},
		"huge values": {step, 5, scaled(1e15)},
		"15 s":        {15 * time.Second, 4, scaled(1)},
		"an hour":     {time.Hour, 7, scaled(1)},
		"three days":  {step, 3, scaled(1)},
		"eight weeks": {time.Hour, 56, scaled(1)},
	}
}
