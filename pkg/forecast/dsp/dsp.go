// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dsp implements the algorithm "dsp" for periodic series: it finds the period, keeps the strong and the slow
// frequencies, and repeats the last period of the filtered series. It accepts gocrane's settings and fixes its
// defects: the filter is conjugate-symmetric, thresholds are relative by default, any period is used, upper quantiles
// come from the errors, and a series without a period falls back to percentile with a reason.
package dsp

import (
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/percentile"
	"crane.io/crane/pkg/series"
)

// Algorithm implements forecast.Algorithm; New returns one.
type Algorithm struct {
	config   config
	fallback *percentile.Algorithm
}

// New parses the settings. The error lists every invalid field with its path, its value and the allowed values.
func New(o Options) (*Algorithm, error) {
	c, err := o.parse()
	if err != nil {
		return nil, fmt.Errorf("dsp: %w", err)
	}

	fallback, err := percentile.New(percentile.Options{})
	if err != nil {
		return nil, fmt.Errorf("dsp: %w", err)
	}

	return &Algorithm{config: c, fallback: fallback}, nil
}

// Name implements forecast.Algorithm.
func (a *Algorithm) Name() string { return "dsp" }

// holdOutLevel is the level of the pinball loss that selects an estimator: a forecast that is too low costs nine
// times one that is too high, similar to gocrane's asymmetric error.
const holdOutLevel = 0.9

// Forecast implements forecast.Algorithm.
func (a *Algorithm) Forecast(history series.Series, horizon time.Duration) (forecast.Forecast, error) {
	history, err := forecast.Check(history, horizon)
	if err != nil {
		return forecast.Forecast{}, err
	}

	if keep := int(a.config.history / history.Step); len(history.Values) > keep {
		cut := len(history.Values) - keep
		history = series.Series{Start: history.Time(cut), Step: history.Step, Values: history.Values[cut:]}
	}

	out, err := a.forecast(history, horizon)
	if err == nil && out.Reason == "" {
		out.Skill, out.Origins = forecast.Skill(history, 24*time.Hour, a.forecast)
	}

	return out, err
}

// forecast is Forecast of a checked history, without the skill.
func (a *Algorithm) forecast(history series.Series, horizon time.Duration) (forecast.Forecast, error) {
	s, reason := prepare(history, a.config.interval)
	period := 0
	if reason == "" {
		period, reason = s.period()
	}

	if reason != "" {
		return a.fallBack(history, horizon, reason)
	}

	return a.periodic(history, horizon, s, period), nil
}

func (a *Algorithm) fallBack(history series.Series, horizon time.Duration, reason string) (forecast.Forecast, error) {
	out, err := a.fallback.Forecast(history, horizon)
	if err != nil {
		return out, fmt.Errorf("dsp fell back to percentile: %s: %w", reason, err)
	}

	out.Reason = "dsp fell back to percentile: " + reason
	return out, nil
}

// periodic forecasts a series of a known period, in samples of s.
func (a *Algorithm) periodic(history series.Series, horizon time.Duration, s *signal, period int) forecast.Forecast {
	values := s.values[len(s.values)%period:]
	past := values[:len(values)-period]
	actual := values[len(values)-period:]

	// The estimator that forecasts the last period best, from the samples before it, forecasts the next one.
	spectrum := newSpectrum(past, s.rate())

	var best estimator
	lowestLoss := math.Inf(1)
	for _, e := range a.config.estimators {
		loss := holdOut(actual, e.estimate(past, spectrum, period))
		if loss < lowestLoss {
			best = e
			lowestLoss = loss
		}
	}

	complete := newSpectrum(values, s.rate())
	filtered := best.filter(values, complete, period)
	errors := newErrors(values, filtered, period, s.perDay())

	out := forecast.Forecast{
		Start:   history.End(),
		Step:    history.Step,
		Model:   "dsp",
		Period:  time.Duration(period) * s.step,
		Periods: len(values) / period,
		Skill:   math.NaN(),
		Values:  make([]forecast.Quantiles, forecast.Steps(horizon, history.Step)),
	}

	last := filtered[len(filtered)-period:]
	for i := range out.Values {
		position := int(time.Duration(i)*history.Step/s.step) % period
		out.Values[i] = errors.quantiles(position, max(0, last[position]), 1+best.margin)
	}

	return out
}

// holdOut returns the mean loss of a forecast of one period.
func holdOut(actual, estimate []float64) float64 {
	sum := 0.0
	for i, y := range actual {
		if d := y - estimate[i]; d > 0 {
			sum += holdOutLevel * d / float64(len(actual))
		} else {
			sum -= (1 - holdOutLevel) * d / float64(len(actual))
		}
	}

	return sum
}
