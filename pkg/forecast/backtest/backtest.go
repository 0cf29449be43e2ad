// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backtest replays forecasting algorithms over history: each rolling origin uses only earlier samples and is
// scored by the samples that follow.
//
// It reads no file and no clock, and the caller chooses the algorithms.
package backtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

// Config configures a backtest. Zero values mean the defaults.
type Config struct {
	// History is the maximum length of history before an origin; default 14 days.
	History time.Duration
	// Horizon is the length of each forecast; default 24 h.
	Horizon time.Duration
	// Every is the distance between origins; default 24 h.
	Every time.Duration
	// First is the length of history before the first origin; default 7 days.
	First time.Duration
	// Quantile is the level of pinball loss and coverage, within [0.5, 0.99]; default 0.95.
	Quantile float64
	// Reference is the algorithm that ratios are relative to; the first algorithm by default and if there is none of
	// that name.
	Reference string
	// Clock measures the time of a fit; without it fit times are 0.
	Clock func() time.Time
}

// Defaults of Config: the protocol of this project's published figures.
const (
	defaultHistory  = 14 * 24 * time.Hour
	defaultHorizon  = 24 * time.Hour
	defaultEvery    = 24 * time.Hour
	defaultFirst    = 7 * 24 * time.Hour
	defaultQuantile = 0.95
)

// Complete sets defaults and returns an error for invalid fields.
func (c Config) Complete() (Config, error) {
	c.History = orDefault(c.History, defaultHistory)
	c.Horizon = orDefault(c.Horizon, defaultHorizon)
	c.Every = orDefault(c.Every, defaultEvery)
	c.First = orDefault(c.First, defaultFirst)
	if c.Quantile == 0 {
		c.Quantile = defaultQuantile
	}

	for _, field := range []struct {
		name  string
		value time.Duration
	}{{"history", c.History}, {"horizon", c.Horizon}, {"every", c.Every}, {"first", c.First}} {
		if field.value < 0 {
			return c, fmt.Errorf("%s: %s is negative", field.name, field.value)
		}
	}

	levels := forecast.Levels()
	if !(c.Quantile >= levels[0] && c.Quantile <= levels[len(levels)-1]) {
		return c, fmt.Errorf("quantile: %v is not within %v and %v", c.Quantile, levels[0], levels[len(levels)-1])
	}

	return c, nil
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}

	return d
}

// Run backtests algorithms over one series. Results are in the order of algorithms. A series that is too short for
// one origin has results without origins. It returns an error for an invalid configuration, and errors of algorithms
// other than forecast.ErrDeclined and unusable input.
func Run(cfg Config, name string, values series.Series, algorithms []forecast.Algorithm) ([]Result, error) {
	cfg, err := cfg.Complete()
	if err != nil {
		return nil, fmt.Errorf("back-test %s: %w", name, err)
	}

	// All algorithms are scored at the same origins, so that their sums can be compared.
	runs := make([][]origin, len(algorithms))

	var constants []float64
	for _, index := range origins(cfg, values) {
		past := cut(values, index-steps(cfg.History, values.Step), index)
		future := cut(values, index, index+steps(cfg.Horizon, values.Step))
		constants = append(constants, forecast.ConstantLoss(past.Values, future.Values, cfg.Quantile))

		for i, algorithm := range algorithms {
			scored, err := score(cfg, algorithm, past, future)
			if err != nil {
				return nil, fmt.Errorf("back-test %s: algorithm %s at %s: %w",
					name, algorithm.Name(), past.End().UTC().Format(time.RFC3339), err)
			}

			runs[i] = append(runs[i], scored)
		}
	}

	reference := max(0, slices.IndexFunc(algorithms, func(a forecast.Algorithm) bool { return a.Name() == cfg.Reference }))
	results := make([]Result, len(algorithms))
	for i, algorithm := range algorithms {
		results[i] = summarize(name, algorithm.Name(), runs[i], runs[reference], constants)
	}

	return results, nil
}

// origins returns the indexes of the forecasts: the first after cfg.First, the last a whole horizon before the end.
func origins(cfg Config, values series.Series) []int {
	if values.Step <= 0 {
		return nil
	}

	var out []int
	every := max(1, steps(cfg.Every, values.Step))
	for index := steps(cfg.First, values.Step); index+steps(cfg.Horizon, values.Step) <= len(values.Values); index += every {
		out = append(out, index)
	}

	return out
}

func steps(d, step time.Duration) int { return int(d / step) }

// cut copies [from, to) of the values, so that an algorithm can neither read beyond an origin nor change the input of
// the next one.
func cut(values series.Series, from, to int) series.Series {
	from = max(0, from)
	to = min(len(values.Values), to)
	out := series.Series{Start: values.Time(from), Step: values.Step, Values: make([]float64, to-from)}
	copy(out.Values, values.Values[from:to])

	return out
}

// origin is the score of one algorithm at one origin.
type origin struct {
	issued   bool
	errors   float64 // sum of absolute errors at the median
	pinball  float64 // sum of pinball losses at the quantile
	actual   float64 // sum of the samples
	covered  int     // points at or below the quantile
	points   int     // points that were scored
	duration time.Duration
}

func score(cfg Config, algorithm forecast.Algorithm, past, future series.Series) (origin, error) {
	var before, after time.Time
	if cfg.Clock != nil {
		before = cfg.Clock()
	}

	forecasted, err := algorithm.Forecast(past, cfg.Horizon)
	if cfg.Clock != nil {
		after = cfg.Clock()
	}

	// An algorithm that declines is scored at the other origins alone.
	out := origin{duration: after.Sub(before)}
	switch {
	case errors.Is(err, forecast.ErrDeclined), errors.Is(err, forecast.ErrEmpty):
		return out, nil
	case err != nil:
		return out, err
	case len(forecasted.Values) < len(future.Values):
		return out, fmt.Errorf("forecast has %d of %d steps", len(forecasted.Values), len(future.Values))
	}

	out.issued = true
	for i, y := range future.Values {
		if !forecast.Usable(y) {
			continue
		}

		out.add(y, forecasted.Values[i].At(0.5), forecasted.Values[i].At(cfg.Quantile), cfg.Quantile)
	}

	return out, nil
}

func (o *origin) add(actual, median, quantile, level float64) {
	o.errors += max(actual-median, median-actual)
	o.pinball += forecast.Pinball(actual, quantile, level)

	o.actual += actual
	o.points++
	if actual <= quantile {
		o.covered++
	}
}
