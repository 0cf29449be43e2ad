// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"time"

	"crane.io/crane/pkg/series"
)

// Policy says how an offer becomes what a node advertises.
type Policy[T Amount] struct {
	// Unit is what is offered in whole ones, at least 1.
	Unit T
	// Margin is the share of the need that stays free beside it.
	Margin series.Ratio
	// Stable is how long an offer has to have been above what is advertised before that grows.
	Stable time.Duration
	// Growth is the share of the allocatable by which it grows in a minute, at most.
	Growth series.Ratio
	// Material is the share of the allocatable by which what is advertised has to change to be written.
	Material series.Ratio
	// MaxAge is the age up to which a measurement counts.
	MaxAge time.Duration
	// Hold is how long what is advertised stays while inputs are unknown.
	Hold time.Duration
	// Resume is how long after an agent has ended in order the next one may go on where it was.
	Resume time.Duration
}

// defaultPolicy has the defaults. The margin is what peaks within a sampling interval may add to a mean; a whole node is given out in five
// minutes at the earliest, which is what it takes to see what the first pods do; a change of less than a fiftieth is noise. gocrane
// wrote changes of a tenth and more, up and down at once, and took use that was older than 20 s for none at all.
func defaultPolicy[T Amount](unit T) Policy[T] {
	return Policy[T]{
		Unit: unit, Margin: 0.1, Stable: 2 * time.Minute, Growth: 0.2, Material: 0.02, MaxAge: time.Minute,
		Hold: 5 * time.Minute, Resume: 10 * time.Minute,
	}
}

// CPU is the policy for cpu: whole cores.
func CPU() Policy[series.MilliCPU] { return defaultPolicy[series.MilliCPU](1000) }

// Memory is the policy for memory: bytes.
func Memory() Policy[series.Bytes] { return defaultPolicy[series.Bytes](1) }
