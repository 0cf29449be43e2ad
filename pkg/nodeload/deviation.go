// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"math"
	"time"

	"crane.io/crane/pkg/series"
)

// deviationMemory is the time over which the variation of a load is remembered: the weight of a sample falls to 1/e in it.
const deviationMemory = time.Hour

// leastSamples is how many samples are needed before they say anything about variation.
const leastSamples = 5

// Deviation follows how much a load varies: the standard deviation of its samples, those of the last hour weighing most
// (an exponentially weighted mean and variance with weights by time). The zero Deviation has seen nothing.
type Deviation struct {
	last     time.Time
	samples  int
	mean     float64
	variance float64
}

// Add takes a sample; one that is not newer than the last is ignored.
func (d *Deviation) Add(s Sample) {
	if !s.Time.After(d.last) {
		return
	}
	x := min(float64(s.Value), 1)
	if d.samples == 0 {
		d.mean = x
	} else {
		// The first samples have equal weights, so that the first alone does not rule the first hour.
		weight := max(1-math.Exp(-float64(s.Time.Sub(d.last))/float64(deviationMemory)), 1/float64(d.samples+1))
		delta := x - d.mean
		d.mean += weight * delta
		d.variance = (1 - weight) * (d.variance + weight*delta*delta)
	}
	d.last = s.Time
	d.samples = min(d.samples+1, math.MaxInt32)
}

// Ratio is the standard deviation as a fraction of capacity, 0 while there are too few samples.
func (d *Deviation) Ratio() series.Ratio {
	if d.samples < leastSamples {
		return 0
	}
	return series.Ratio(math.Sqrt(max(d.variance, 0)))
}
