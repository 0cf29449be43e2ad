// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package histogram implements distributions of non-negative values in buckets of equal relative width.
//
// Two types share one bucket grid: Counts, the small sketch of one day, kept in large numbers; and Histogram, a
// weighted sum of such sketches. Age weights apply when sketches are summed, so stored data never decays in place.
// The grid has no configured range: it covers every float64 above ValueFloor, so the unit of the values does not
// matter.
package histogram

import (
	"math"
	"slices"
)

const (
	// perOctaveBits gives 64 buckets for each doubling of the value.
	perOctaveBits = 6
	mantissaBits  = 52
	// bucketShift turns the bits of a positive float64 into its bucket: exponent and the first mantissa bits.
	bucketShift = mantissaBits - perOctaveBits

	// BucketsPerOctave is the number of buckets for each doubling of the value.
	BucketsPerOctave = 1 << perOctaveBits

	// RelativeError bounds the error of a quantile that falls in a bucket: |estimate-exact| <= RelativeError*exact.
	// A bucket is at most 1/64 of its lower edge wide, and both estimate and exact value lie inside it.
	RelativeError = 1.0 / BucketsPerOctave

	// ValueFloor is the smallest value that is distinguished from zero: 2^-30, about 1e-9 (a nanocore, a billionth of
	// a byte). Smaller values count as zero.
	ValueFloor = 1.0 / (1 << 30)

	// maxBucket is the last bucket that holds finite values: exponent 2046, all mantissa bits.
	maxBucket = 2047<<perOctaveBits - 1
)

// bucketOf returns the bucket of v, which must be finite and at least ValueFloor.
func bucketOf(v float64) int { return int(math.Float64bits(v) >> bucketShift) }

// lowerEdge is the smallest value of a bucket; lowerEdge(b+1) is its (excluded) upper edge.
func lowerEdge(bucket int) float64 { return math.Float64frombits(uint64(bucket) << bucketShift) }

// isUsage reports whether v can be a measurement of use: finite and not below zero.
func isUsage(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }

// number is the type of a bucket's content.
type number interface{ ~uint16 | ~uint32 | ~float64 }

// view is a read-only window of buckets; the statistics of Histogram and Counts are written once, over it.
type view[T number] struct {
	// zero is the weight of values below ValueFloor.
	zero float64
	// first is the bucket of bins[0].
	first int
	bins  []T
	// total is zero plus the sum of bins.
	total float64
	// low and high are the extremes that were added; estimates never leave them.
	low, high float64
}

// edges returns the range of values of bins[i]: its bucket, limited to the smallest and largest added value.
func (v view[T]) edges(i int) (lower, upper float64) {
	lower = lowerEdge(v.first + i)
	upper = lowerEdge(v.first + i + 1)
	if v.high < upper {
		upper = max(v.high, lower)
	}
	if v.low > lower {
		lower = min(v.low, upper)
	}

	return lower, upper
}

// quantile returns the value below which a share q of the weight lies, linear inside a bucket.
func (v view[T]) quantile(q float64) float64 {
	if !(v.total > 0) || math.IsNaN(q) {
		return math.NaN()
	}

	switch {
	case q >= 1:
		return v.high
	case q <= 0:
		return v.low
	}

	// Iterate from the top, where the usual quantiles are.
	above := (1 - q) * v.total
	for i, n := range slices.Backward(v.bins) {
		if n == 0 {
			continue
		}

		w := float64(n)
		if above <= w {
			lower, upper := v.edges(i)
			return min(max(upper-above/w*(upper-lower), v.low), v.high)
		}

		above -= w
	}

	return v.low
}

// above returns the weight above x and the weighted sum of the excess over x. Values are taken as spread evenly inside
// their bucket.
func (v view[T]) above(x float64) (weight, excess float64) {
	// A NaN in x or an empty view has no order, and ends here too.
	if !(x < v.high) || !(v.total > 0) {
		return 0, 0
	}

	for i, n := range slices.Backward(v.bins) {
		w := float64(n)
		if w == 0 {
			continue
		}

		lower, upper := v.edges(i)
		switch {
		case x <= lower:
			weight += w
			excess += w * ((lower+upper)/2 - x)
		case x < upper:
			part := w * (upper - x) / (upper - lower)
			weight += part
			excess += part * (upper - x) / 2
		default:
			return weight, excess
		}
	}

	return weight, excess
}
