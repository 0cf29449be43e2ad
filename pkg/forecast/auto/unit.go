// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"time"
)

// unit summarises the samples of one unit of time (15 minutes, or more at a coarser step): the median of each of its
// sub-slots, which keeps the shape, and two upper order statistics, which keep the tail. NaN marks what has no sample.
type unit struct {
	mid  [maxSub]float32
	high float32 // the 5/6 quantile of the samples
	top  float32 // the 29/30 quantile: the largest of 15
}

// shares are what the atoms of a unit stand for: the medians together, the high, the top. They sum to 1.
type shares [levelAtoms]float32

// sharesFor returns the shares at a step. Of 15 samples eleven are below the neighbourhood of the high one, three in it,
// and one is the largest. Where a sub-slot has a sample or two, its median is all there is to know.
func sharesFor(l layout, step time.Duration) shares {
	if l.unit/step < 2*maxSub {
		return shares{1, 0, 0}
	}
	return shares{11.0 / 15, 3.0 / 15, 1.0 / 15}
}

func emptyUnit() unit {
	nan := float32(math.NaN())
	return unit{mid: [maxSub]float32{nan, nan, nan}, high: nan, top: nan}
}

func (u unit) empty() bool { return u.top != u.top }

// atom returns the i-th of the unit's atoms: the medians, the high, the top.
func (u *unit) atom(i int) float32 {
	switch {
	case i < maxSub:
		return u.mid[i]
	case i == maxSub:
		return u.high
	}
	return u.top
}

// layout says how time is cut: units of a fixed length, each of some sub-slots.
type layout struct {
	unit time.Duration
	sub  int
}

// layoutFor returns the finest layout whose sub-slots hold a sample each at the given step. Units divide a day.
func layoutFor(step time.Duration) layout {
	if step <= 5*time.Minute {
		return layout{unit: 15 * time.Minute, sub: maxSub}
	}
	for _, u := range []time.Duration{
		15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour,
		8 * time.Hour, 12 * time.Hour,
	} {
		if step <= u {
			return layout{unit: u, sub: 1}
		}
	}
	return layout{unit: day, sub: 1}
}

// perDay returns how many units a day has.
func (l layout) perDay() int { return int(day / l.unit) }

// perBlock returns how many units a block of about an hour has.
func (l layout) perBlock() int { return max(1, l.perDay()/24) }

// seconds returns the length of a unit.
func (l layout) seconds() int64 { return int64(l.unit / time.Second) }

// capacity returns how many units the history has.
func (l layout) capacity() int { return min(maxUnits, historyDays*l.perDay()) }

// The levels of a unit's upper atoms.
const (
	highLevel = 5.0 / 6
	topLevel  = 29.0 / 30
)

// summarise turns the samples of a unit into its atoms; begins says where each sub-slot that has been entered begins. It
// sorts the samples of each sub-slot in place.
func summarise(sub int, samples []float32, begins []int) unit {
	out := emptyUnit()
	if len(samples) == 0 {
		return out
	}
	var runs [maxSub][]float32
	for i, begin := range begins[:min(sub, len(begins))] {
		end := len(samples)
		if i+1 < len(begins) {
			end = begins[i+1]
		}
		if part := samples[begin:end]; len(part) > 0 {
			insertionSort(part)
			out.mid[i] = quantileSorted(part, 0.5)
			runs[i] = part
		}
	}
	// The upper atoms need the largest samples only: take them from the ends of the sorted runs.
	var largest [bufferSize]float32
	n := len(samples)
	for i := n - 1; i >= max(0, int(highLevel*float64(n)-0.5)); i-- {
		best := -1
		for r, run := range runs {
			if len(run) > 0 && (best < 0 || run[len(run)-1] > runs[best][len(runs[best])-1]) {
				best = r
			}
		}
		last := len(runs[best]) - 1
		largest[i] = runs[best][last]
		runs[best] = runs[best][:last]
	}
	out.high = quantileSorted(largest[:n], highLevel)
	out.top = quantileSorted(largest[:n], topLevel)
	return out
}

// insertionSort sorts short slices: a sub-slot has a handful of samples, a buffer at most.
func insertionSort(x []float32) {
	for i := 1; i < len(x); i++ {
		v := x[i]
		j := i
		for j > 0 && x[j-1] > v {
			x[j] = x[j-1]
			j--
		}
		x[j] = v
	}
}

// quantileSorted interpolates between mid-ranks: the i-th of n values is its (i+1/2)/n quantile.
func quantileSorted(x []float32, level float64) float32 {
	at := level*float64(len(x)) - 0.5
	if at <= 0 {
		return x[0]
	}
	i := int(at)
	if i >= len(x)-1 {
		return x[len(x)-1]
	}
	w := float32(at - float64(i))
	return x[i] + w*(x[i+1]-x[i])
}
