// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"slices"
	"time"
)

const (
	// ringSize samples, one each ringEvery, are what is usual: ten minutes, short enough for a load that changes with the day.
	ringSize  = 120
	ringEvery = 5 * time.Second
	// ringLeast is the number of samples from which on they say what is usual: two minutes.
	ringLeast = 24
)

// ring is the last samples of a pod. Its size is fixed, whatever becomes of the pod.
type ring struct {
	values [ringSize]float32
	n      int // that are there
	next   int // place of the next

	known       bool // middle and spread are of values
	middle, dev float64
}

// add takes a sample in, in the place of the oldest.
func (r *ring) add(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	r.values[r.next] = float32(v)
	r.next = (r.next + 1) % ringSize
	r.n, r.known = min(r.n+1, ringSize), false
}

func (r *ring) clear() { *r = ring{} }

// usual is the median of the samples and how far they are from it: 1.4826 times the median of the distances, which is the standard
// deviation of a normal distribution (Hampel, The influence curve and its role in robust estimation, 1974). A few outliers, of a start or a
// backup, move neither.
func (r *ring) usual() (middle, deviation float64) {
	if r.known || r.n == 0 {
		return r.middle, r.dev
	}
	var scratch [ringSize]float32
	sorted := scratch[:copy(scratch[:], r.values[:r.n])]
	r.middle = median(sorted)
	for i := range sorted {
		sorted[i] = float32(math.Abs(float64(sorted[i]) - r.middle))
	}
	const normal = 1.4826
	r.dev, r.known = normal*median(sorted), true
	return r.middle, r.dev
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

// list is the samples, the oldest first, and where there are more than most some of them, evenly spread.
func (r *ring) list(most int) []float32 {
	n := min(r.n, most)
	out := make([]float32, n)
	for i := range out {
		out[i] = r.values[(r.next-r.n+i*r.n/n+ringSize)%ringSize]
	}
	return out
}
