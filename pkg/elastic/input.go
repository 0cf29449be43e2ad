// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/series"
)

// Input is what is known of a resource of a node at a time.
type Input[T Amount] struct {
	At time.Time
	// Allocatable is what the node has for pods; unknown where it is not more than 0.
	Allocatable T
	// Reserve is the share of Allocatable that is never offered, from 0 to 1; anything else is unknown. ReserveProblem says why.
	Reserve        series.Ratio
	ReserveProblem string
	Use            Use[T]
	Forecast       Forecast[T]
	// Allocated is what pods of the node hold of the resource. It counts only where PodsKnown.
	Allocated T
	PodsKnown bool
	// Advertised is what the node advertises at present, Absent that it does not name the resource at all.
	Advertised    T
	NotAdvertised bool
}

// Use is what was measured; unknown with a zero At.
type Use[T Amount] struct {
	At time.Time
	// Total is the use of the whole node, Elastic the part of it by pods on elastic resources. Use of theirs that is not known
	// counts as that of others.
	Total, Elastic T
	// Exclusive is what containers hold for themselves alone and leave idle.
	Exclusive T
	// Reason says why nothing was measured.
	Reason string
}

// Forecast is what is expected of everything that is not elastic.
type Forecast[T Amount] struct {
	// Requested tells that somebody asked for one. Without it the use alone counts.
	Requested bool
	// Peak is the highest within the time ahead that matters. It counts only where OK, until the time Until.
	Peak  T
	OK    bool
	Until time.Time
	// Detail says where it comes from, or why there is none.
	Detail string
}

// clockTolerance is by how much clocks of two machines, or one before and after it was set, may differ.
const clockTolerance = 5 * time.Second

// need is what is used or expected by others than elastic pods.
func (u Use[T]) need() T { return max(u.Total-max(u.Elastic, 0), 0) + max(u.Exclusive, 0) }

// problemAt says why a use cannot be used; empty where it can.
func (u Use[T]) problemAt(now time.Time, maxAge time.Duration) string {
	switch {
	case u.At.IsZero() && u.Reason != "":
		return "use is not known: " + u.Reason
	case u.At.IsZero():
		return "use is not known"
	case now.Sub(u.At) > maxAge:
		return fmt.Sprintf("use was measured %s ago", now.Sub(u.At).Truncate(time.Second))
	case u.At.Sub(now) > clockTolerance:
		return fmt.Sprintf("use was measured %s ahead of the clock", u.At.Sub(now).Truncate(time.Second))
	case u.Total < 0 || u.Total > maxAmount || u.Exclusive > maxAmount:
		return fmt.Sprintf("use of %d is no amount", u.Total)
	}
	return ""
}

// problemAt says why a forecast that is wanted cannot be used; empty where it can.
func (f Forecast[T]) problemAt(now time.Time) string {
	switch {
	case !f.Requested:
		return ""
	case !f.OK && f.Detail != "":
		return "no forecast: " + f.Detail
	case !f.OK:
		return "no forecast"
	case f.Peak < 0 || f.Peak > maxAmount:
		return fmt.Sprintf("no forecast: %d is no amount", f.Peak)
	case !f.Until.After(now):
		return "no forecast: it ended at " + f.Until.UTC().Format(time.RFC3339)
	}
	return ""
}
