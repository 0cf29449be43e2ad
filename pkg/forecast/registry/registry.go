// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry creates forecasting algorithms by name and settings, for API objects and command lines.
package registry

import (
	"fmt"
	"slices"
	"strings"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/forecast/baseline"
	"crane.io/crane/pkg/forecast/dsp"
	"crane.io/crane/pkg/forecast/percentile"
)

// Names of the algorithms. Crane acts on the first three; the others are for comparison.
const (
	Auto              = "auto"
	DSP               = "dsp"
	Percentile        = "percentile"
	Plain             = "plain"
	SeasonalNaive     = "seasonal-naive"
	SeasonalNaiveWeek = "seasonal-naive-week"
	GocraneDSP        = "gocrane-dsp"
)

// Names returns all names, those that Crane acts on first.
func Names() []string {
	return []string{Auto, DSP, Percentile, SeasonalNaive, SeasonalNaiveWeek, Plain, GocraneDSP}
}

// Baselines returns the names of the algorithms for comparison.
func Baselines() []string { return []string{SeasonalNaive, SeasonalNaiveWeek, Plain, GocraneDSP} }

// Options are the settings of the algorithms that have some; only those of the named one are read.
type Options struct {
	// Holidays are known holidays, for Auto; others are detected.
	Holidays   auto.Calendar
	DSP        dsp.Options
	Percentile percentile.Options
}

// New returns an algorithm by name; an empty name is Auto. Errors list the invalid settings, or the known names.
func New(name string, o Options) (forecast.Algorithm, error) {
	// A constructor returns a nil pointer with its error, which must not become an Algorithm that is not nil.
	switch name {
	case "", Auto:
		return auto.Algorithm{Holidays: o.Holidays}, nil
	case DSP:
		a, err := dsp.New(o.DSP)
		if err != nil {
			return nil, err
		}

		return a, nil

	case Percentile:
		a, err := percentile.New(o.Percentile)
		if err != nil {
			return nil, err
		}

		return a, nil

	case Plain:
		return baseline.Plain{}, nil
	case SeasonalNaive:
		return baseline.Yesterday(), nil
	case SeasonalNaiveWeek:
		return baseline.LastWeek(), nil
	case GocraneDSP:
		return baseline.GocraneDSP{}, nil
	}

	names := Names()
	slices.Sort(names)
	return nil, fmt.Errorf("unknown algorithm %q: want one of %s", name, strings.Join(names, ", "))
}
