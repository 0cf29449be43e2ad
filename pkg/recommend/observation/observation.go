// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observation checks whether a quantity was measured for long and recently enough before a conclusion is drawn from
// it. Missing and stale values lead to a state with a reason, never to a zero. The meaning of quantities does not belong
// here.
package observation

import (
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// Hours are the values of one quantity of one target, one per hour, oldest first; the last hour ends now. Values that are
// NaN, infinite or below zero are unknown.
type Hours []float64

// Requirement defines how much of a window must be known.
type Requirement struct {
	// Hours is the length of the window, above 0.
	Hours int
	// Share is the share of the hours that must be known, from 0 to 1.
	Share units.Ratio
	// MaxStale is the number of last hours that may be unknown.
	MaxStale int
	// PartTime is set if the target need not exist all the time, as pods that run on weekdays: days on which it is known at its hours then
	// count as a whole. It is not for conclusions from what is absent.
	PartTime bool
}

// DefaultRequirement requires nine tenths of a window of some hours, and a value in the last three hours, so that a
// restarted or delayed source does not matter.
func DefaultRequirement(hours int) Requirement {
	return Requirement{Hours: hours, Share: 0.9, MaxStale: 3}
}

// Check reports whether a quantity is sufficiently known. If it is not, the state is NoData or Learning, and the reason a
// sentence with the name of the quantity, such as "cpu use".
func (n Requirement) Check(what string, h Hours) (state recommend.State, reason string) {
	h = n.window(h)
	count := 0
	first := -1

	last := -1
	for i, v := range h {
		if !IsKnown(v) {
			continue
		}

		if first < 0 {
			first = i
		}

		count++
		last = i
	}

	maxStale := n.MaxStale
	partTime := n.PartTime && isPartTime(h, n.Share)
	if partTime {
		maxStale += weekend
	}

	// A stale value and a window with many gaps allow no conclusion. Of a target that runs part time, five days of a week are enough.
	required := max(1, int(math.Ceil(float64(n.Share)*float64(n.Hours))))
	switch {
	case count == 0:
		return recommend.NoData, fmt.Sprintf("No %s is known for the last %s.", what, units.FormatHours(n.Hours))
	case len(h)-1-last > maxStale:
		return recommend.NoData, fmt.Sprintf("The last %s that is known is %s old.", what, units.FormatHours(len(h)-1-last))
	case partTime && n.Hours > 24 && 7*24*knownDays(h) >= 5*required && len(h)-first+weekend >= required:
	case count < required:
		return recommend.Learning, fmt.Sprintf("The %s is known for %d of the last %d hours, and has to be for %d.", what, count, n.Hours, required)
	}

	return recommend.Ready, ""
}

// weekend is the number of hours that a target may be away that runs in the day on weekdays.
const weekend = 66

// isPartTime reports whether no hour is known at one part of the day, and the other hours of the days with any are known: a target that runs
// part time, rather than a source with holes.
func isPartTime(h Hours, share units.Ratio) bool {
	var atHour [24]bool
	count := 0
	for i, v := range h {
		if IsKnown(v) {
			count++
			atHour[(len(h)-1-i)%24] = true
		}
	}

	hours := 0
	rests := 0
	for i, known := range atHour {
		if known {
			hours++
		}
		if known && !atHour[(i+1)%24] {
			rests++
		}
	}

	// The first and the last day may be cut.
	const minRest = 4

	return rests == 1 && hours <= 24-minRest && float64(count) >= float64(share)*float64(hours*(knownDays(h)-1))
}

// knownDays returns the number of days, from the last hour backward, with a known hour.
func knownDays(h Hours) int {
	days := map[int]bool{}
	for i, v := range h {
		if IsKnown(v) {
			days[(len(h)-1-i)/24] = true
		}
	}

	return len(days)
}

// KnownValues returns the known values of the window, oldest first.
func (n Requirement) KnownValues(h Hours) []float64 {
	var out []float64
	for _, v := range n.window(h) {
		if IsKnown(v) {
			out = append(out, v)
		}
	}

	return out
}

// Quantile returns a quantile of the known values of the window; NaN if there are none.
func (n Requirement) Quantile(h Hours, q units.Ratio) float64 {
	return series.Quantile(n.KnownValues(h), float64(q))
}

// window returns the last hours.
func (n Requirement) window(h Hours) Hours { return h[max(0, len(h)-max(n.Hours, 0)):] }

// IsKnown reports whether v is a known value.
func IsKnown(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }

// Unknown returns a number of unknown hours.
func Unknown(hours int) Hours {
	out := make(Hours, hours)
	for i := range out {
		out[i] = series.Gap()
	}

	return out
}

// HourlyMax returns the largest value of each of a number of hours before end.
func HourlyMax(s series.Series, end time.Time, hours int) Hours {
	out := Unknown(hours)
	first := end.Add(-time.Duration(hours) * time.Hour)
	for i, v := range s.Values {
		at := s.Time(i)
		if !IsKnown(v) || at.Before(first) || !at.Before(end) {
			continue
		}

		if hour := &out[int(at.Sub(first)/time.Hour)]; !IsKnown(*hour) || v > *hour {
			*hour = v
		}
	}

	return out
}

// Add adds another quantity hour by hour. An hour is known if one of both is.
func (h Hours) Add(part Hours) {
	h.merge(part, func(a, b float64) float64 { return a + b })
}

// Max keeps the larger value of each hour.
func (h Hours) Max(part Hours) {
	h.merge(part, func(a, b float64) float64 { return max(a, b) })
}

// merge aligns both at their ends.
func (h Hours) merge(part Hours, combine func(a, b float64) float64) {
	for i := 1; i <= min(len(h), len(part)); i++ {
		a := &h[len(h)-i]
		b := part[len(part)-i]
		switch {
		case !IsKnown(b):
		case IsKnown(*a):
			*a = combine(*a, b)
		default:
			*a = b
		}
	}
}
