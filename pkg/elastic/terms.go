// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"strings"
	"time"
)

// Source is the origin of the need.
type Source string

// Sources of the need.
const (
	SourceForecast Source = "forecast"
	SourceUse      Source = "use"
	// SourceNone means that neither is known.
	SourceNone Source = "nothing"
)

// Terms holds the terms of the formula in one unit. Unknown terms are 0, with the reason in Problem.
type Terms[T Amount] struct {
	Allocatable, Reserve T
	// Forecast and Use are both candidates for Need; NeedSource says which it is.
	Forecast, Use, Need T
	NeedSource          Source
	Margin              T
	// Offer is the remainder in whole units, at least 0.
	Offer T
	// Stable is the smallest offer since Since, within the stabilization period.
	Stable T
	Since  time.Time
	// Allocated is what pods hold, in whole units.
	Allocated T
	// Problem lists unknown inputs; empty for none.
	Problem string
}

// ceiling returns the maximum offer.
func (t *Terms[T]) ceiling(unit T) T { return roundDown(t.Allocatable-t.Reserve, unit) }

// computeTerms evaluates the formula. bounded means that Offer is at least an upper bound, since a part of the need is known.
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
		note("allocatable is unknown")
	}
	reserveOK := in.Reserve >= 0 && in.Reserve <= 1 && in.ReserveProblem == ""
	if !reserveOK {
		note("the reserve is unknown" + formatReason(in.ReserveProblem))
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
