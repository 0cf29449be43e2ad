// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"slices"
	"time"
)

const (
	// ringSize samples, one each sampleInterval, are what is usual: ten minutes, short enough for a load that changes with the day.
	ringSize       = 120
	sampleInterval = 5 * time.Second
	// minSamples is the number of samples from which on they say what is usual: two minutes.
	minSamples = 24
)

// ring is the last samples of a pod. Its size is fixed, whatever becomes of the pod.
type ring struct {
	values [ringSize]float32
	n      int // that are there
	next   int // place of the next

	cached            bool // middle and spread are of values
	median, deviation float64
}

// add takes a sample in, in the place of the oldest.
func (r *ring) add(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	r.values[r.next] = float32(v)
	r.next = (r.next + 1) % ringSize
	r.n, r.cached = min(r.n+1, ringSize), false
}

func (r *ring) clear() { *r = ring{} }

// stats is the median of the samples and how far they are from it: 1.4826 times the median of the distances, which is the standard
// deviation of a normal distribution (Hampel, The influence curve and its role in robust estimation, 1974). A few outliers, of a start or a
// backup, move neither.
func (r *ring) stats() (middle, deviation float64) {
	if r.cached || r.n == 0 {
		return r.median, r.deviation
	}
	var scratch [ringSize]float32
	sorted := scratch[:copy(scratch[:], r.values[:r.n])]
	r.median = median(sorted)
	for i := range sorted {
		sorted[i] = float32(math.Abs(float64(sorted[i]) - r.median))
	}
	const normal = 1.4826
	r.deviation, r.cached = normal*median(sorted), true
	return r.median, r.deviation
}

// median sorts values, of which there is one at least.
func median(values []float32) float64 {
	slices.Sort(values)
	half := len(values) / 2
	if len(values)%2 == 1 {
		return float64(values[half])
	}
	return (float64(values[half-1]) + float64(values[half])) / 2
}

// evenSamples is the samples, the oldest first, and where there are more than most some of them, evenly spread.
func (r *ring) evenSamples(most int) []float32 {
	n := min(r.n, most)
	out := make([]float32, n)
	for i := range out {
		out[i] = r.values[(r.next-r.n+i*r.n/n+ringSize)%ringSize]
	}
	return out
}
