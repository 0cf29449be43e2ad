// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"math"
	"time"

	"crane.io/crane/pkg/series"
)

// deviationMemory is the time constant of the variation: the weight of a sample falls to 1/e in it.
const deviationMemory = time.Hour

// minSamples is the number of samples before the variation is used.
const minSamples = 5

// Deviation is the exponentially weighted standard deviation of a load over about an hour, with weights by time. The
// zero Deviation has no samples.
type Deviation struct {
	last     time.Time
	samples  int
	mean     float64
	variance float64
}

// Add adds a sample; one that is not newer than the last is ignored.
func (d *Deviation) Add(s Sample) {
	if !s.Time.After(d.last) {
		return
	}
	x := min(float64(s.Value), 1)
	if d.samples == 0 {
		d.mean = x
	} else {
		// The first samples have equal weights, so that the first one does not dominate the first hour.
		weight := max(1-math.Exp(-float64(s.Time.Sub(d.last))/float64(deviationMemory)), 1/float64(d.samples+1))
		delta := x - d.mean
		d.mean += weight * delta
		d.variance = (1 - weight) * (d.variance + weight*delta*delta)
	}
	d.last = s.Time
	d.samples = min(d.samples+1, math.MaxInt32)
}

// Ratio returns the standard deviation as a fraction of capacity, 0 with too few samples.
func (d *Deviation) Ratio() series.Ratio {
	if d.samples < minSamples {
		return 0
	}
	return series.Ratio(math.Sqrt(max(d.variance, 0)))
}
