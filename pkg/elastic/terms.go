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
	FromForecast Source = "forecast"
	FromUse      Source = "use"
	// FromNothing tells that neither is known.
	FromNothing Source = "nothing"
)

// Terms are those of the formula, all in one unit. What could not be counted is 0, with Problem saying why.
type Terms[T Amount] struct {
	Allocatable, Reserve T
	// Forecast and Use are what would be needed by either, From which of them Need is.
	Forecast, Use, Need T
	From                Source
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
func (t *Terms[T]) ceiling(unit T) T { return down(t.Allocatable-t.Reserve, unit) }

// reckon fills in the formula. bounded tells that Offer is at least an upper bound: something is known of the need.
func reckon[T Amount](in *Input[T], p *Policy[T]) (t Terms[T], bounded bool) {
	t.From, t.Allocated = FromNothing, whole(min(max(in.Allocated, 0), most), p.Unit)
	var problems []string
	note := func(problem string) bool {
		if problem != "" {
			problems = append(problems, problem)
		}
		return problem == ""
	}
	useOK, forecastOK := note(in.Use.problem(in.At, p.MaxAge)), note(in.Forecast.problem(in.At)) && in.Forecast.Wanted
	nodeOK := in.Allocatable > 0 && in.Allocatable < most
	if !nodeOK {
		note("what the node has for pods is not known")
	}
	reserveOK := in.Reserve >= 0 && in.Reserve <= 1 && in.ReserveWhy == ""
	if !reserveOK {
		note("the reserve is not known" + because(in.ReserveWhy))
	}
	t.Problem = strings.Join(problems, "; ")
	if useOK {
		t.Use, t.Need, t.From = in.Use.need(), in.Use.need(), FromUse
	}
	if forecastOK {
		t.Forecast = in.Forecast.Peak
		if !useOK || t.Forecast > t.Need {
			t.Need, t.From = t.Forecast, FromForecast
		}
	}
	t.Margin = share(t.Need, p.Margin)
	if !nodeOK {
		return t, false
	}
	t.Allocatable = in.Allocatable
	if reserveOK {
		t.Reserve = share(in.Allocatable, in.Reserve)
	}
	if t.From != FromNothing {
		t.Offer = down(t.Allocatable-t.Reserve-t.Need-t.Margin, p.Unit)
	}
	return t, t.From != FromNothing
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
