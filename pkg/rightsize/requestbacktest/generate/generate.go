// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package generate creates memory series with the shapes of real containers from a seed, because there are no public traces
// of container memory at steps of a minute. The same seed leads to the same series on every machine. Policies do not belong
// here.
package generate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"crane.io/crane/pkg/rightsize/requestbacktest"
	"crane.io/crane/pkg/series"
)

const (
	perDay = 24 * 60
	mib    = float64(1 << 20)
)

// shape returns the memory of one container at each minute, in multiples of its base.
type shape struct {
	name string
	draw func(rng *rand.Rand, n int) []float64
}

// shapes returns the patterns of memory usage. Each has random parameters, so that all series of a shape differ.
func shapes() []shape {
	return []shape{
		{"plateau", plateau},
		{"daily", daily},
		{"weekly", weekly},
		{"heap", heap},
		{"leak-restarted", leakRestarted},
		{"grows", grows},
		{"level-shift", levelShift},
		{"nightly", nightly},
		{"spikes", spikes},
		{"cache", cache},
	}
}

// Memory returns n series of the given number of days, one sample a minute in bytes, from Monday 5 January 2026 on. The
// shapes take turns: plateau, daily and weekly cycles, garbage-collected heaps, leaks that restarts end and leaks that
// nothing ends, shifts of level, nightly jobs, rare spikes, caches that fill.
func Memory(seed uint64, n, days int) []requestbacktest.Named {
	all := shapes()
	out := make([]requestbacktest.Named, n)
	for i := range out {
		kind := all[i%len(all)]
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		base := 64 * mib * math.Exp2(6*rng.Float64())
		noise := 0.002 + 0.01*rng.Float64()
		values := kind.draw(rng, days*perDay)

		// Noise that lasts some minutes, as allocations do.
		slow := 0.0
		for k := range values {
			slow = 0.9*slow + 0.436*rng.NormFloat64()
			values[k] = math.Round(base * values[k] * math.Max(0.05, 1+noise*slow))
		}

		out[i] = requestbacktest.Named{
			Name:   fmt.Sprintf("%s-%d", kind.name, i),
			Series: series.Series{Start: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), Step: time.Minute, Values: values},
		}
	}

	return out
}

// wave is a day's cycle between 0 and 1 with its peak in the afternoon.
func wave(minute int) float64 {
	return 0.5 - 0.5*math.Cos(2*math.Pi*(float64(minute%perDay)/perDay-0.1))
}

func fill(n int, f func(i int) float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = f(i)
	}

	return out
}

func plateau(rng *rand.Rand, n int) []float64 {
	swing := 0.06 * rng.Float64()
	return fill(n, func(i int) float64 { return 1 + swing*wave(i) })
}

// daily returns a daily cycle with a varying amplitude.
func daily(rng *rand.Rand, n int) []float64 {
	swing := 0.2 + 0.8*rng.Float64()
	variation := 0.05 + 0.2*rng.Float64()
	heights := drawDays(n, func() float64 { return swing * math.Exp(variation*rng.NormFloat64()) })

	return fill(n, func(i int) float64 { return 1 + heights[i/perDay]*wave(i) })
}

// weekly is daily with quiet or busy weekends.
func weekly(rng *rand.Rand, n int) []float64 {
	workday := 0.3 + 0.5*rng.Float64()
	weekend := 0.8 * rng.Float64()
	if rng.Float64() < 0.3 {
		workday, weekend = weekend, workday
	}

	variation := 0.03 + 0.1*rng.Float64()
	day := -1
	heights := drawDays(n, func() float64 {
		day++
		height := workday
		if day%7 >= 5 {
			height = weekend
		}

		return height * math.Exp(variation*rng.NormFloat64())
	})

	return fill(n, func(i int) float64 { return 1 + heights[i/perDay]*wave(i) })
}

// heap returns live data with a sawtooth of garbage; full collections occur at a threshold that drifts with the live
// data.
func heap(rng *rand.Rand, n int) []float64 {
	live := 0.5 + 0.2*rng.Float64()
	garbage := 0.0
	rate := 0.002 + 0.01*rng.Float64()
	threshold := 0.4 + 0.3*rng.Float64()

	return fill(n, func(i int) float64 {
		garbage += rate * (0.3 + wave(i)) * rng.ExpFloat64()
		if garbage > threshold {
			garbage = 0.1 * threshold * rng.Float64()
		}

		return live*(1+0.2*wave(i)) + garbage
	})
}

// leakRestarted leaks until a restart, by deployment, every one to six days.
func leakRestarted(rng *rand.Rand, n int) []float64 {
	perMinute := (0.05 + 0.25*rng.Float64()) / perDay
	size := 0.6
	remaining := 0

	return fill(n, func(i int) float64 {
		remaining--
		if remaining < 0 {
			size = 0.6
			remaining = perDay/2 + rng.IntN(5*perDay)
		}

		size += perMinute * (0.5 + wave(i))
		return size
	})
}

// grows leaks and is never restarted.
func grows(rng *rand.Rand, n int) []float64 {
	perMinute := (0.01 + 0.05*rng.Float64()) / perDay
	size := 0.6
	return fill(n, func(i int) float64 {
		size += perMinute * (0.5 + wave(i))
		return size + 0.05*wave(i)
	})
}

// levelShift moves to another level once or twice.
func levelShift(rng *rand.Rand, n int) []float64 {
	level := 1.0
	shift := n/3 + rng.IntN(n/2)
	swing := 0.1 * rng.Float64()

	return fill(n, func(i int) float64 {
		if i == shift {
			level *= math.Exp(0.1 + 0.4*rng.Float64())
			if rng.Float64() < 0.4 {
				level = 1 / level
			}

			shift += perDay + rng.IntN(n)
		}

		return level * (1 + swing*wave(i))
	})
}

// nightly returns a job of one to three hours each night with varying size.
func nightly(rng *rand.Rand, n int) []float64 {
	size := 0.5 + 1.5*rng.Float64()
	variation := 0.05 + 0.15*rng.Float64()
	begin := 60 * rng.IntN(5)
	length := 60 + rng.IntN(120)
	heights := drawDays(n, func() float64 { return size * math.Exp(variation*rng.NormFloat64()) })

	return fill(n, func(i int) float64 {
		minute := i%perDay - begin
		if minute < 0 || minute >= length {
			return 0.5
		}

		return 0.5 + heights[i/perDay]*math.Sin(math.Pi*float64(minute)/float64(length))
	})
}

// spikes returns spikes about every four days with a heavy-tailed height.
func spikes(rng *rand.Rand, n int) []float64 {
	height := 0.0
	remaining := 0
	return fill(n, func(int) float64 {
		remaining--
		if remaining < 0 {
			height = 0
			remaining = 0
			if rng.Float64() < 1.0/(4*perDay) {
				height = math.Min(0.3*math.Exp(0.5*rng.NormFloat64()), 1.5)
				remaining = 5 + rng.IntN(40)
			}
		}

		return 0.7 + height
	})
}

// cache fills toward a bound, over days.
func cache(rng *rand.Rand, n int) []float64 {
	perMinute := (0.1 + 0.6*rng.Float64()) / perDay
	size := 0.3
	bound := 0.8 + 0.4*rng.Float64()

	return fill(n, func(i int) float64 {
		size += (bound - size) * perMinute
		return size + 0.03*wave(i)
	})
}

func drawDays(n int, draw func() float64) []float64 {
	return fill(n/perDay+1, func(int) float64 { return draw() })
}
