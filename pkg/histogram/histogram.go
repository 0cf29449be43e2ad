// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package histogram

const (
	// MaxBuckets limits a Histogram to 24 octaves, a factor of 1.6e7 between the largest value and the lowest bucket.
	// Lower values are counted in the lowest bucket. The size is at most 12 KiB.
	MaxBuckets = 24 * BucketsPerOctave
	// growBy is how many spare buckets a window gets when it must grow downwards.
	growBy = BucketsPerOctave / 2
)

// Histogram is a sum of Counts with a weight for each. The zero value is empty. Adding allocates only when the range of
// values widens. It is not safe for use by several goroutines at once.
type Histogram struct {
	zero      float64
	first     int
	weights   []float64
	total     float64
	low, high float64
}

// Reset empties the histogram and keeps its memory.
func (h *Histogram) Reset() {
	*h = Histogram{weights: h.weights[:0]}
}

// Add adds the samples of c, each with the given weight. A weight that is NaN, infinite or not positive adds nothing.
func (h *Histogram) Add(c *Counts, weight float64) {
	if c.Total() == 0 || !isUsage(weight) || weight == 0 {
		return
	}

	h.updateExtremes(float64(c.low), float64(c.high))
	h.total += weight * float64(c.total)
	h.zero += weight * float64(c.zero)
	if c.wide != nil {
		addBins(h, int(c.first), c.wide, weight)
		return
	}

	addBins(h, int(c.first), c.narrow, weight)
}

// Quantile returns the value below which a share q (0..1, clamped) of the weight lies; NaN when empty. Inside its
// bucket it interpolates, so it is not biased to either edge; see RelativeError. It never leaves the range of the
// values added, and is monotone in q.
func (h *Histogram) Quantile(q float64) float64 { return h.view().quantile(q) }

func (h *Histogram) view() view[float64] {
	return view[float64]{
		zero:  h.zero,
		first: h.first,
		bins:  h.weights,
		total: h.total,
		low:   h.low,
		high:  h.high,
	}
}

func (h *Histogram) updateExtremes(low, high float64) {
	if h.total == 0 {
		h.low = low
		h.high = high
		return
	}

	h.low = min(h.low, low)
	h.high = max(h.high, high)
}

// widen makes the window contain the buckets low to high, as far as MaxBuckets allows; the lowest buckets fold into one.
func (h *Histogram) widen(low, high int) {
	if len(h.weights) == 0 {
		h.first = max(low, high-MaxBuckets+1)
		h.weights = resize(h.weights, high-h.first+1)
		clear(h.weights)

		return
	}

	last := h.first + len(h.weights) - 1
	high = max(high, last)

	// Spare buckets below save moves for values that are only a little lower.
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

	h.first = first
	h.weights = moved
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

// resize returns s with length n and its content, reusing its memory if possible.
func resize(s []float64, n int) []float64 {
	if n <= cap(s) {
		return s[:n]
	}

	return append(s[:cap(s)], make([]float64, n-cap(s))...)[:n]
}
