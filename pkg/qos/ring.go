// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"slices"
	"time"
)

const (
	// ringSize samples, one per sampleInterval, cover ten minutes: short enough to follow a daily load.
	ringSize       = 120
	sampleInterval = 5 * time.Second
	// minSamples is the number of samples, two minutes of them, from which the statistics are used.
	minSamples = 24
)

// ring holds the last samples of a pod in fixed space.
type ring struct {
	values [ringSize]float32
	n      int // number of samples held
	next   int // position of the next sample

	cached            bool // median and dev are up to date
	median, deviation float64
}

// add replaces the oldest sample.
func (r *ring) add(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	r.values[r.next] = float32(v)
	r.next = (r.next + 1) % ringSize
	r.n, r.cached = min(r.n+1, ringSize), false
}

func (r *ring) clear() { *r = ring{} }

// stats returns the median of the samples and their scatter, 1.4826 times the median absolute deviation, which estimates the standard
// deviation of a normal distribution (Hampel, The influence curve and its role in robust estimation, 1974). A few outliers, as from a
// start or a backup, change neither.
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

// median sorts values, which must not be empty, and returns their median.
func median(values []float32) float64 {
	slices.Sort(values)
	half := len(values) / 2
	if len(values)%2 == 1 {
		return float64(values[half])
	}
	return (float64(values[half-1]) + float64(values[half])) / 2
}

// evenSamples returns at most n samples, the oldest first, evenly spaced.
func (r *ring) evenSamples(most int) []float32 {
	n := min(r.n, most)
	out := make([]float32, n)
	for i := range out {
		out[i] = r.values[(r.next-r.n+i*r.n/n+ringSize)%ringSize]
	}
	return out
}
