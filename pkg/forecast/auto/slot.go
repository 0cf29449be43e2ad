// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import "time"

// day is the season of the forecasts.
const day = 24 * time.Hour

const (
	// historyDays is how much history is kept: two weeks, so that every weekday occurs twice.
	historyDays = 14
	// maxSlots is the number of slots of 5 minutes in the history; longer slots need fewer.
	maxSlots = historyDays * 288
)

// The atoms of a slot: order statistics that stand for its samples.
const (
	median = iota
	high
	top
	atomCount
)

// atoms are the order statistics of the samples of a slot; all are NaN if it has no sample.
type atoms [atomCount]float32

func emptySlot() atoms { return atoms{nan(), nan(), nan()} }

func (a atoms) empty() bool { return isNaN(a[median]) }

// shares are the shares of a slot's samples that its atoms stand for. They sum to 1.
type shares [atomCount]float32

// layout divides time into slots. Slots divide a day.
type layout struct {
	slot   time.Duration
	shares shares
}

// layoutFor returns the layout for a step: slots of 5 minutes, or the shortest ones that hold a sample each.
func layoutFor(step time.Duration) layout {
	for _, slot := range []time.Duration{
		5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour,
		4 * time.Hour, 6 * time.Hour, 8 * time.Hour, 12 * time.Hour,
	} {
		if step <= slot {
			return layout{slot: slot, shares: sharesFor(int(slot / step))}
		}
	}

	return layout{slot: day, shares: sharesFor(1)}
}

// sharesFor returns the shares of the atoms of n samples. The top atom stands for the largest sample, or for the
// largest tenth of many; the high one for the rest of the upper two fifths.
func sharesFor(n int) shares {
	if n < 2 {
		return shares{1, 0, 0}
	}

	largest := max(0.1, 1/float32(n))
	next := max(0, 0.4-largest)
	return shares{1 - largest - next, next, largest}
}

func (l layout) perDay() int { return int(day / l.slot) }

func (l layout) seconds() int64 { return int64(l.slot / time.Second) }

// capacity returns the number of slots in the history.
func (l layout) capacity() int { return historyDays * l.perDay() }

// summarize returns the atoms of samples. It sorts them in place.
func (l layout) summarize(samples []float32) atoms {
	if len(samples) == 0 {
		return emptySlot()
	}

	insertionSort(samples)
	return atoms{
		quantileSorted(samples, 0.5),
		quantileSorted(samples, float64(1-l.shares[top]-l.shares[high]/2)),
		quantileSorted(samples, float64(1-l.shares[top]/2)),
	}
}

// insertionSort sorts short slices.
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
	rank := level*float64(len(x)) - 0.5
	if rank <= 0 {
		return x[0]
	}

	i := int(rank)
	if i >= len(x)-1 {
		return x[len(x)-1]
	}

	w := float32(rank - float64(i))
	return x[i] + w*(x[i+1]-x[i])
}
