// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"strings"
	"time"
)

// Source is what the need comes from.
type Source string

// The sources.
const (
	SourceForecast Source = "forecast"
	SourceUse      Source = "use"
	// SourceNone tells that neither is known.
	SourceNone Source = "nothing"
)

// Terms are those of the formula, all in one unit. What could not be counted is 0, with Problem saying why.
type Terms[T Amount] struct {
	Allocatable, Reserve T
	// Forecast and Use are what would be needed by either, From which of them Need is.
	Forecast, Use, Need T
	NeedSource          Source
	Margin              T
	// Offer is what is left, in whole units, 0 at least.
	Offer T
	// Stable is the least offer of the time in which it has to be stable, Since when that began.
	Stable T
	Since  time.Time
	// Allocated is what pods hold, in whole units.
	Allocated T
	// Problem says what is not known; empty where all is.
	Problem string
}

// ceiling is the most that may be offered.
func (t *Terms[T]) ceiling(unit T) T { return roundDown(t.Allocatable-t.Reserve, unit) }

// computeTerms fills in the formula. bounded tells that Offer is at least an upper bound: something is known of the need.
func computeTerms[T Amount](in *Input[T], p *Policy[T]) (t Terms[T], bounded bool) {
	t.NeedSource, t.Allocated = SourceNone, roundUpUnits(min(max(in.Allocated, 0), maxAmount), p.Unit)
	var problems []string
	note := func(problem string) bool {
		if problem != "" {
			problems = append(problems, problem)
		}
		return problem == ""
	}
	useOK, forecastOK := note(in.Use.problemAt(in.At, p.MaxAge)), note(in.Forecast.problemAt(in.At)) && in.Forecast.Requested
	nodeOK := in.Allocatable > 0 && in.Allocatable < maxAmount
	if !nodeOK {
		note("what the node has for pods is not known")
	}
	reserveOK := in.Reserve >= 0 && in.Reserve <= 1 && in.ReserveProblem == ""
	if !reserveOK {
		note("the reserve is not known" + formatReason(in.ReserveProblem))
	}
	t.Problem = strings.Join(problems, "; ")
	if useOK {
		t.Use, t.Need, t.NeedSource = in.Use.need(), in.Use.need(), SourceUse
	}
	if forecastOK {
		t.Forecast = in.Forecast.Peak
		if !useOK || t.Forecast > t.Need {
			t.Need, t.NeedSource = t.Forecast, SourceForecast
		}
	}
	t.Margin = fraction(t.Need, p.Margin)
	if !nodeOK {
		return t, false
	}
	t.Allocatable = in.Allocatable
	if reserveOK {
		t.Reserve = fraction(in.Allocatable, in.Reserve)
	}
	if t.NeedSource != SourceNone {
		t.Offer = roundDown(t.Allocatable-t.Reserve-t.Need-t.Margin, p.Unit)
	}
	return t, t.NeedSource != SourceNone
}

func formatReason(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
