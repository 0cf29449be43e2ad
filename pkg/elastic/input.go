// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/units"
)

// Input holds the inputs of a decision for one resource of a node.
type Input[T Amount] struct {
	At time.Time
	// Allocatable is the node's allocatable amount; unknown if it is not above 0.
	Allocatable T
	// Reserve is the share of Allocatable that is never offered, from 0 to 1; other values are unknown, with the reason in
	// ReserveProblem.
	Reserve        units.Ratio
	ReserveProblem string
	Use            Use[T]
	Forecast       Forecast[T]
	// Allocated is what the node's pods hold; valid only if PodsKnown.
	Allocated T
	PodsKnown bool
	// Advertised is what the node shows; NotAdvertised means that it does not have the resource.
	Advertised    T
	NotAdvertised bool
}

// Use is a measurement; unknown with a zero At.
type Use[T Amount] struct {
	At time.Time
	// Total is the use of the whole node, Elastic that of pods on elastic resources. Unknown use of such pods counts as that of others.
	Total, Elastic T
	// Exclusive is held exclusively by containers and idle.
	Exclusive T
	// Reason is the reason why there is no measurement.
	Reason string
}

// Forecast is the expected use of everything that is not elastic.
type Forecast[T Amount] struct {
	// Requested means that a forecast is configured. Without it only the use counts.
	Requested bool
	// Peak is the maximum in the forecast window. It is valid only if OK, until Until.
	Peak  T
	OK    bool
	Until time.Time
	// Detail describes the source, or why there is no forecast.
	Detail string
}

// clockTolerance is the accepted difference between clocks.
const clockTolerance = 5 * time.Second

// need returns the amount needed by non-elastic pods.
func (u Use[T]) need() T { return max(u.Total-max(u.Elastic, 0), 0) + max(u.Exclusive, 0) }

// problemAt returns why a use is invalid; empty if it is valid.
func (u Use[T]) problemAt(now time.Time, maxAge time.Duration) string {
	switch {
	case u.At.IsZero() && u.Reason != "":
		return "use is unknown: " + u.Reason
	case u.At.IsZero():
		return "use is unknown"
	case now.Sub(u.At) > maxAge:
		return fmt.Sprintf("use was measured %s ago", now.Sub(u.At).Truncate(time.Second))
	case u.At.Sub(now) > clockTolerance:
		return fmt.Sprintf("use was measured %s ahead of the clock", u.At.Sub(now).Truncate(time.Second))
	case u.Total < 0 || u.Total > maxAmount || u.Exclusive > maxAmount:
		return fmt.Sprintf("use of %d is out of range", u.Total)
	}

	return ""
}

// problemAt returns why a requested forecast is invalid; empty if it is valid.
func (f Forecast[T]) problemAt(now time.Time) string {
	switch {
	case !f.Requested:
		return ""
	case !f.OK && f.Detail != "":
		return "no forecast: " + f.Detail
	case !f.OK:
		return "no forecast"
	case f.Peak < 0 || f.Peak > maxAmount:
		return fmt.Sprintf("no forecast: %d is out of range", f.Peak)
	case !f.Until.After(now):
		return "no forecast: it ended at " + f.Until.UTC().Format(time.RFC3339)
	}

	return ""
}

// Policy configures how the advertised amount follows the offer.
type Policy[T Amount] struct {
	// Unit is the granularity of offers, at least 1.
	Unit T
	// Margin is the share of the need that stays free in addition.
	Margin units.Ratio
	// Stable is how long an offer must exceed the advertised amount before that grows.
	Stable time.Duration
	// Growth is the maximum growth per minute as a share of allocatable.
	Growth units.Ratio
	// Material is the minimum change that is written, as a share of allocatable.
	Material units.Ratio
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
		Unit:     unit,
		Margin:   0.1,
		Stable:   2 * time.Minute,
		Growth:   0.2,
		Material: 0.02,
		MaxAge:   time.Minute,
		Hold:     5 * time.Minute,
		Resume:   10 * time.Minute,
	}
}

// CPU returns the policy for CPU, in whole cores.
func CPU() Policy[units.MilliCPU] { return defaultPolicy[units.MilliCPU](1000) }

// Memory returns the policy for memory, in bytes.
func Memory() Policy[units.Bytes] { return defaultPolicy[units.Bytes](1) }
