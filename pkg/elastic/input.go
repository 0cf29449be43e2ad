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
	// Reserve is the share of Allocatable that is never offered, from 0 to 1; anything else is unknown. ReserveWhy says why.
	Reserve    series.Ratio
	ReserveWhy string
	Use        Use[T]
	Forecast   Forecast[T]
	// Allocated is what pods of the node hold of the resource. It counts only where PodsKnown.
	Allocated T
	PodsKnown bool
	// Shown is what the node advertises at present, Absent that it does not name the resource at all.
	Shown  T
	Absent bool
}

// Use is what was measured; unknown with a zero At.
type Use[T Amount] struct {
	At time.Time
	// Total is the use of the whole node, Elastic the part of it by pods on elastic resources. Use of theirs that is not known
	// counts as that of others.
	Total, Elastic T
	// Exclusive is what containers hold for themselves alone and leave idle.
	Exclusive T
	// Why says why nothing was measured.
	Why string
}

// Forecast is what is expected of everything that is not elastic.
type Forecast[T Amount] struct {
	// Wanted tells that somebody asked for one. Without it the use alone counts.
	Wanted bool
	// Peak is the highest within the time ahead that matters. It counts only where OK, until the time Until.
	Peak  T
	OK    bool
	Until time.Time
	// Why says where it comes from, or why there is none.
	Why string
}

// tolerance is by how much clocks of two machines, or one before and after it was set, may differ.
const tolerance = 5 * time.Second

// need is what is used or expected by others than elastic pods.
func (u Use[T]) need() T { return max(u.Total-max(u.Elastic, 0), 0) + max(u.Exclusive, 0) }

// problem says why a use cannot be used; empty where it can.
func (u Use[T]) problem(now time.Time, maxAge time.Duration) string {
	switch {
	case u.At.IsZero() && u.Why != "":
		return "use is not known: " + u.Why
	case u.At.IsZero():
		return "use is not known"
	case now.Sub(u.At) > maxAge:
		return fmt.Sprintf("use was measured %s ago", now.Sub(u.At).Truncate(time.Second))
	case u.At.Sub(now) > tolerance:
		return fmt.Sprintf("use was measured %s ahead of the clock", u.At.Sub(now).Truncate(time.Second))
	case u.Total < 0 || u.Total > most || u.Exclusive > most:
		return fmt.Sprintf("use of %d is no amount", u.Total)
	}
	return ""
}

// problem says why a forecast that is wanted cannot be used; empty where it can.
func (f Forecast[T]) problem(now time.Time) string {
	switch {
	case !f.Wanted:
		return ""
	case !f.OK && f.Why != "":
		return "no forecast: " + f.Why
	case !f.OK:
		return "no forecast"
	case f.Peak < 0 || f.Peak > most:
		return fmt.Sprintf("no forecast: %d is no amount", f.Peak)
	case !f.Until.After(now):
		return "no forecast: it ended at " + f.Until.UTC().Format(time.RFC3339)
	}
	return ""
}
