// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observation says how much is known of a quantity before something is concluded from it: whether it was seen long
// enough, and until when. What is missing or stale is a state with a reason here, never a zero. The package must not know
// what the quantity is.
package observation

import (
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/series"
)

// Hours are the values of one quantity of one target, one for each hour, oldest first; the last is for the hour that ends
// now. Values that are NaN, infinite or below zero are not known.
type Hours []float64

// Requirement is how much has to be known.
type Requirement struct {
	// Hours is the length of the window, above 0.
	Hours int
	// Share of the hours that has to be known, from 0 to 1.
	Share series.Ratio
	// MaxStale is how many of the last hours may be unknown.
	MaxStale int
}

// DefaultRequirement needs nine tenths of a window of so many hours, and a value that is not older than three hours: a source that was
// restarted, or is an hour behind, is no reason to say nothing.
func DefaultRequirement(hours int) Requirement {
	return Requirement{Hours: hours, Share: 0.9, MaxStale: 3}
}

// Check tells whether a quantity is known well enough. Where it is not, the state is NoData or Learning, and the reason a
// sentence about it; what names the quantity, such as "cpu use".
func (n Requirement) Check(what string, h Hours) (state recommend.State, reason string) {
	h = n.window(h)
	known, last, first := 0, -1, -1
	for i, v := range h {
		if !IsKnown(v) {
			continue
		}
		if first < 0 {
			first = i
		}
		known, last = known+1, i
	}
	least := max(1, int(math.Ceil(float64(n.Share)*float64(n.Hours))))
	switch {
	case known == 0:
		return recommend.NoData, fmt.Sprintf("No %s is known for the last %s.", what, FormatHours(n.Hours))
	case len(h)-1-last > n.MaxStale:
		return recommend.NoData, fmt.Sprintf("The last %s that is known is %s old.", what, FormatHours(len(h)-1-last))
	case known < least:
		return recommend.Learning, fmt.Sprintf("The %s is known for %d of the last %d hours, and has to be for %d.", what, known, n.Hours, least)
	}
	return recommend.Ready, ""
}

// KnownValues are the known values of the window, oldest first.
func (n Requirement) KnownValues(h Hours) []float64 {
	var out []float64
	for _, v := range n.window(h) {
		if IsKnown(v) {
			out = append(out, v)
		}
	}
	return out
}

// Quantile of the known values of the window; NaN where there is none.
func (n Requirement) Quantile(h Hours, q series.Ratio) float64 {
	return series.Quantile(n.KnownValues(h), float64(q))
}

// window cuts what is older.
func (n Requirement) window(h Hours) Hours { return h[max(0, len(h)-max(n.Hours, 0)):] }

// FormatHours writes a number of hours for people: "7d" or "36h".
func FormatHours(hours int) string {
	if hours%24 == 0 && hours > 24 {
		return fmt.Sprintf("%dd", hours/24)
	}
	return fmt.Sprintf("%dh", hours)
}

// FormatPercentile names a percentile for people: "p99", or "the most".
func FormatPercentile(q series.Ratio) string {
	if q >= 1 {
		return "the most"
	}
	return fmt.Sprintf("p%.4g", 100*float64(q))
}

// IsKnown tells whether v is a value.
func IsKnown(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }

// Unknown is a list of so many hours of which nothing is known.
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

// Add adds what is known of one part to the sum of several: an hour in which one of them is known is known.
func (h Hours) Add(part Hours) {
	h.merge(part, func(a, b float64) float64 { return a + b })
}

// Max keeps the larger of both in each hour.
func (h Hours) Max(part Hours) {
	h.merge(part, func(a, b float64) float64 { return max(a, b) })
}

// merge lines both up at their ends.
func (h Hours) merge(part Hours, of func(a, b float64) float64) {
	for i := 1; i <= min(len(h), len(part)); i++ {
		a, b := &h[len(h)-i], part[len(part)-i]
		switch {
		case !IsKnown(b):
		case IsKnown(*a):
			*a = of(*a, b)
		default:
			*a = b
		}
	}
}
