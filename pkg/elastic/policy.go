// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"time"

	"crane.io/crane/pkg/series"
)

// Policy configures how the advertised amount follows the offer.
type Policy[T Amount] struct {
	// Unit is the granularity of offers, at least 1.
	Unit T
	// Margin is the share of the need that stays free in addition.
	Margin series.Ratio
	// Stable is how long an offer must exceed the advertised amount before that grows.
	Stable time.Duration
	// Growth is the maximum growth per minute as a share of allocatable.
	Growth series.Ratio
	// Material is the minimum change that is written, as a share of allocatable.
	Material series.Ratio
	// MaxAge is the maximum age of a measurement.
	MaxAge time.Duration
	// Hold is how long the advertised amount stays while inputs are unknown.
	Hold time.Duration
	// Resume is how long after an orderly stop the next agent may resume.
	Resume time.Duration
}

// defaultPolicy returns the defaults. The margin covers peaks within a sampling interval beyond the mean. A whole node is offered after
// five minutes at the earliest, which is the time to see the effect of the first pods. A change below a fiftieth is noise. gocrane wrote
// changes of a tenth and more in both directions at once, and ignored use older than 20 s.
func defaultPolicy[T Amount](unit T) Policy[T] {
	return Policy[T]{
		Unit: unit, Margin: 0.1, Stable: 2 * time.Minute, Growth: 0.2, Material: 0.02, MaxAge: time.Minute,
		Hold: 5 * time.Minute, Resume: 10 * time.Minute,
	}
}

// CPU returns the policy for CPU, in whole cores.
func CPU() Policy[series.MilliCPU] { return defaultPolicy[series.MilliCPU](1000) }

// Memory returns the policy for memory, in bytes.
func Memory() Policy[series.Bytes] { return defaultPolicy[series.Bytes](1) }
