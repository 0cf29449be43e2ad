// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
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
	// Forecast and Use are both candidates for Need; NeedSource names the one that was used.
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
func computeTerms[T Amount](in *Input[T], p *Policy[T]) (t Terms[T], isUpperBound bool) {
	t.NeedSource = SourceNone
	t.Allocated = roundUpUnits(min(max(in.Allocated, 0), maxAmount), p.Unit)
	var problems []string
	note := func(problem string) bool {
		if problem != "" {
			problems = append(problems, problem)
		}

		return problem == ""
	}

	useOK := note(in.Use.problemAt(in.At, p.MaxAge))
	forecastOK := note(in.Forecast.problemAt(in.At)) && in.Forecast.Requested

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
		t.Use = in.Use.need()
		t.Need = in.Use.need()
		t.NeedSource = SourceUse
	}

	// The larger need counts; if one is unknown, the other.
	if forecastOK {
		t.Forecast = in.Forecast.Peak
		if !useOK || t.Forecast > t.Need {
			t.Need = t.Forecast
			t.NeedSource = SourceForecast
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

// Amount is an amount of a resource in its own unit.
type Amount interface {
	units.MilliCPU | units.Bytes
}

// maxAmount limits amounts to 1.1e15 cores or 1 EiB, so that sums do not overflow.
const maxAmount = math.MaxInt64 / 8

// ParseCores converts cores to millicores, rounded up. It returns an error for negative, infinite and too large numbers.
func ParseCores(v float64) (units.MilliCPU, error) {
	m, err := parseAmount(v * 1000)
	if err != nil {
		return 0, fmt.Errorf("%v cores %w", v, err)
	}

	return units.MilliCPU(m), nil
}

// ParseBytes converts a number of bytes, rounded up. It returns an error for negative, infinite and too large numbers.
func ParseBytes(v float64) (units.Bytes, error) {
	b, err := parseAmount(v)
	if err != nil {
		return 0, fmt.Errorf("%v bytes %w", v, err)
	}

	return units.Bytes(b), nil
}

type amountError string

func (e amountError) Error() string { return string(e) }

func parseAmount(v float64) (int64, error) {
	if !(v >= 0 && v < maxAmount) {
		return 0, amountError("are out of range")
	}

	return roundUp(v), nil
}

// roundUp rounds up, except for floating-point errors.
func roundUp(v float64) int64 { return int64(math.Ceil(v - 1e-6)) }

// fraction returns a share of an amount, rounded up.
func fraction[T Amount](amount T, share units.Ratio) T {
	return T(roundUp(float64(amount) * float64(share)))
}

// roundDown rounds down to whole units; negative amounts become 0.
func roundDown[T Amount](v, unit T) T { return max(v, 0) / unit * unit }

// roundUpUnits rounds up to whole units.
func roundUpUnits[T Amount](v, unit T) T { return roundDown(v+unit-1, unit) }

// AllocatedShare returns the share of an offer that pods hold; 1 is all of it. Above the offer it is 1 plus the deficit as a share of the
// offer, or of one unit if the offer is less; any allocation of an empty offer is above 1.
func AllocatedShare[T Amount](allocated, offer, unit T) units.Ratio {
	allocated = max(allocated, 0)
	offer = max(offer, 0)
	base := float64(max(offer, unit, 1))
	if allocated > offer {
		return units.Ratio(1 + float64(allocated-offer)/base)
	}

	return units.Ratio(float64(allocated) / base)
}

// ParseReserve parses a share of a node from 0 to 100 percent, with or without a percent sign.
func ParseReserve(text string) (units.Ratio, error) {
	number := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "%"))
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !(percent >= 0 && percent <= 100) {
		return 0, fmt.Errorf("%.40q is not a percentage from 0%% to 100%%", text)
	}

	return units.Ratio(percent / 100), nil
}
