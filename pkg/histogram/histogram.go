// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package histogram

import (
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	// MaxBuckets bounds a Histogram: 24 octaves, a factor of 1.6e7 between the largest value and the lowest bucket.
	// What is lower is counted in the lowest bucket. 12 KiB at most.
	MaxBuckets = 24 * BucketsPerOctave
	// growBy is how many spare buckets a window gets when it must grow downwards.
	growBy = BucketsPerOctave / 2
	// maxExponent is how far, in half-lives, the newest sample may be from the reference before weights are rescaled.
	maxExponent = 50
	// forgotten is the age, in half-lives, from which a sample has no weight that a float64 sum could still show.
	forgotten = 100
)

// Histogram is a distribution whose samples lose half of their weight with every half-life. The zero value is an empty
// histogram that does not decay. Adding a sample allocates only when the range of values widens. It is not safe for
// use by several goroutines at once.
type Histogram struct {
	halfLife time.Duration
	// reference is the time at which a sample's weight counts once; zero before the first sample.
	reference time.Time
	zero      float64
	first     int
	weights   []float64
	total     float64
	sum       float64
	low, high float64
}

// New returns an empty histogram. A half-life of zero means that samples keep their weight; below zero is an error.
func New(halfLife time.Duration) (*Histogram, error) {
	if halfLife < 0 {
		return nil, fmt.Errorf("half-life %v: must not be below zero", halfLife)
	}
	return &Histogram{halfLife: halfLife}, nil
}

// HalfLife is the time in which a sample loses half of its weight; 0 means never.
func (h *Histogram) HalfLife() time.Duration { return h.halfLife }

// Reset empties the histogram and keeps its memory and its half-life.
func (h *Histogram) Reset() {
	*h = Histogram{halfLife: h.halfLife, weights: h.weights[:0]}
}

// Add counts value with the given weight at time at, and tells whether it did: a value or weight that is NaN, infinite
// or below zero is refused, and so is a weight of zero. Samples may come in any order.
func (h *Histogram) Add(value, weight float64, at time.Time) bool {
	if !usable(value) || !usable(weight) || weight == 0 {
		return false
	}
	weight *= h.decay(at)
	if weight == 0 || math.IsInf(weight, 1) {
		return false
	}
	h.extremes(value, value)
	h.total += weight
	h.sum += weight * value
	if value < ValueFloor {
		h.zero += weight
		return true
	}
	h.weights[h.slot(bucketOf(value))] += weight
	return true
}

// AddCounts adds all that c holds, each sample with the given weight at time at.
func (h *Histogram) AddCounts(c *Counts, weight float64, at time.Time) {
	if c.Total() == 0 || !usable(weight) || weight == 0 {
		return
	}
	if weight *= h.decay(at); weight == 0 || math.IsInf(weight, 1) {
		return
	}
	h.extremes(float64(c.low), float64(c.high))
	h.total += weight * float64(c.total)
	h.sum += weight * c.sum
	h.zero += weight * float64(c.zero)
	if c.wide != nil {
		addBins(h, int(c.first), c.wide, weight)
		return
	}
	addBins(h, int(c.first), c.narrow, weight)
}

// Merge adds all that other holds. Both must have the same half-life. other is not changed.
func (h *Histogram) Merge(other *Histogram) error {
	if h.halfLife != other.halfLife {
		return fmt.Errorf("merge histograms with half-lives %v and %v: they must be equal", h.halfLife, other.halfLife)
	}
	if other.total == 0 {
		return nil
	}
	weight := h.decay(other.reference)
	if weight == 0 {
		return nil
	}
	if math.IsInf(weight, 1) {
		return errors.New("merge histograms: their times lie too far apart")
	}
	h.extremes(other.low, other.high)
	h.total += weight * other.total
	h.sum += weight * other.sum
	h.zero += weight * other.zero
	addBins(h, other.first, other.weights, weight)
	return nil
}

// Total is the decayed weight of all samples as of the histogram's own reference; only ratios of it have a meaning.
func (h *Histogram) Total() float64 { return h.total }

// Empty tells whether no sample has been counted.
func (h *Histogram) Empty() bool { return !(h.total > 0) }

// Mean is the weighted mean of the samples, exact but for rounding; NaN when empty.
func (h *Histogram) Mean() float64 { return h.sum / h.total }

// Max is the largest value ever added, exact and not decayed; NaN when empty.
func (h *Histogram) Max() float64 {
	if h.Empty() {
		return math.NaN()
	}
	return h.high
}

// Quantile returns the value below which a share q (0..1, clamped) of the weight lies; NaN when empty. Inside its
// bucket it interpolates, so it is not biased to either edge; see RelativeError. It never leaves the range of the
// values added, and is monotone in q.
func (h *Histogram) Quantile(q float64) float64 { return h.view().quantile(q) }

// ShareAbove returns the share of the weight that lies above x; NaN when empty.
func (h *Histogram) ShareAbove(x float64) float64 {
	if h.Empty() {
		return math.NaN()
	}
	weight, _ := h.view().above(x)
	return min(weight/h.total, 1)
}

func (h *Histogram) view() view[float64] {
	return view[float64]{zero: h.zero, first: h.first, bins: h.weights, total: h.total, low: h.low, high: h.high}
}

// decay is the factor of a sample taken at time at: 2^((at-reference)/halfLife). It moves the reference when needed.
func (h *Histogram) decay(at time.Time) float64 {
	if h.halfLife == 0 {
		return 1
	}
	if h.reference.IsZero() || h.total == 0 {
		h.reference = at
		return 1
	}
	age := float64(at.Sub(h.reference)) / float64(h.halfLife)
	if age > maxExponent {
		h.rescale(math.Exp2(-age))
		h.reference = at
		return 1
	}
	if age < -forgotten {
		return 0
	}
	return math.Exp2(age)
}

// rescale multiplies all weights by factor.
func (h *Histogram) rescale(factor float64) {
	for i := range h.weights {
		h.weights[i] *= factor
	}
	h.zero *= factor
	h.total *= factor
	h.sum *= factor
}

func (h *Histogram) extremes(low, high float64) {
	if h.total == 0 {
		h.low, h.high = low, high
		return
	}
	h.low, h.high = min(h.low, low), max(h.high, high)
}

// slot returns the index in weights of a bucket and widens the window when it must.
func (h *Histogram) slot(bucket int) int {
	if i := bucket - h.first; i >= 0 && i < len(h.weights) {
		return i
	}
	h.widen(bucket, bucket)
	return max(bucket-h.first, 0)
}

// widen makes the window hold the buckets low to high, as far as MaxBuckets allows; the lowest buckets fold into one.
func (h *Histogram) widen(low, high int) {
	if len(h.weights) == 0 {
		h.first = max(low, high-MaxBuckets+1)
		h.weights = resize(h.weights, high-h.first+1)
		clear(h.weights)
		return
	}
	last := h.first + len(h.weights) - 1
	high = max(high, last)
	first := h.first
	if low < first {
		first = max(low-growBy, 0)
	}
	first = max(first, high-MaxBuckets+1)
	if first == h.first {
		old := len(h.weights)
		h.weights = resize(h.weights, high-first+1)
		clear(h.weights[old:])
		return
	}
	moved := make([]float64, high-first+1)
	for i, w := range h.weights {
		moved[max(h.first+i-first, 0)] += w
	}
	h.first, h.weights = first, moved
}

// addBins adds bins, whose first bucket is first, to h.
func addBins[T number](h *Histogram, first int, bins []T, weight float64) {
	if len(bins) == 0 {
		return
	}
	if last := first + len(bins) - 1; len(h.weights) == 0 || first < h.first || last >= h.first+len(h.weights) {
		h.widen(first, last)
	}
	for i, n := range bins {
		h.weights[max(first+i-h.first, 0)] += weight * float64(n)
	}
}

// resize returns s with length n, keeping what it holds and reusing its memory where that is enough.
func resize(s []float64, n int) []float64 {
	if n <= cap(s) {
		return s[:n]
	}
	return append(s[:cap(s)], make([]float64, n-cap(s))...)[:n]
}
