// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forecast defines forecasts of time series with prediction intervals.
//
// It defines what a Forecast contains, what an Algorithm must do and which input is rejected. The algorithms are in
// sub-packages: auto (the default), dsp and percentile (the named algorithms of the API), baseline (simple methods
// and those of other projects, for comparison) and registry (algorithms by name and options). Package backtest
// replays them over history.
//
// The package does not depend on Kubernetes, on the source of samples or on the use of a forecast.
package forecast

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/series"
)

// NumLevels is the number of quantiles of every step of a forecast.
const NumLevels = 5

// Levels returns the probabilities of the quantiles of a step, ascending. 0.5 is the point forecast; sizing,
// autoscaling and scheduling use 0.9 to 0.99; 0.75 keeps the interpolation between them accurate.
func Levels() [NumLevels]float64 { return [NumLevels]float64{0.5, 0.75, 0.9, 0.95, 0.99} }

// Quantiles are the values of one step at Levels: finite, never negative, never decreasing.
type Quantiles [NumLevels]float64

// At returns the quantile at a level, linearly interpolated between Levels. Levels outside [0.5, 0.99] and NaN are
// clamped.
func (q Quantiles) At(level float64) float64 {
	levels := Levels()
	if !(level > levels[0]) {
		return q[0]
	}

	for i := 1; i < NumLevels; i++ {
		if level <= levels[i] {
			w := (level - levels[i-1]) / (levels[i] - levels[i-1])
			return q[i-1] + w*(q[i]-q[i-1])
		}
	}

	return q[NumLevels-1]
}

// Constant returns quantiles that are all v.
func Constant(v float64) Quantiles {
	var q Quantiles
	for i := range q {
		q[i] = v
	}

	return q
}

// Forecast is a distribution over a horizon: quantiles for each of its steps, and how they were computed.
type Forecast struct {
	// Start is the time of Values[0]: the first step after the last sample of the history.
	Start time.Time
	// Step is the distance between two values; > 0.
	Step time.Duration
	// Values are the quantiles of each step, in the unit of the series.
	Values []Quantiles
	// Highs are the quantiles over the past days of the highest sample of each HighStep of the horizon; the first one contains Start.
	// They are larger than the quantiles of single steps where load comes in short bursts. Empty where the model has none.
	Highs []Quantiles
	// Model names the model, for instance "auto: daily" or "percentile".
	Model string
	// Period is the season of the model; 0 if it has none.
	Period time.Duration
	// Periods is the number of whole seasons (days, without a season) in the history.
	Periods int
	// Skill is 1 - loss/reference of a replay of the series itself: forecasts of 24 h from daily origins, each from earlier
	// samples alone, by pinball loss at SkillLevel. The reference is the same quantile of the samples before each origin, a
	// constant: 1 is perfect, 0 is no better than a constant, negative is worse. NaN if the history is too short for an
	// origin, and for algorithms that are not replayed.
	Skill float64
	// Origins is the number of origins that Skill rests on.
	Origins int
	// Reason is why the model fell back to a simpler one; empty if it did not.
	Reason string
}

// HighStep is the step of Forecast.Highs, which begin at multiples of it.
const HighStep = 15 * time.Minute

// OfHighs returns the forecast with the values of Highs at its own steps; without values where it has no highs.
func (f Forecast) OfHighs() Forecast {
	first := f.Start.Truncate(HighStep)
	values := f.Values

	f.Values = nil
	if len(f.Highs) == 0 {
		return f
	}

	f.Values = make([]Quantiles, len(values))
	for i := range values {
		cell := int(f.Start.Add(time.Duration(i)*f.Step).Sub(first) / HighStep)
		f.Values[i] = f.Highs[min(cell, len(f.Highs)-1)]
	}

	return f
}

// End returns the time just after the last value.
func (f Forecast) End() time.Time { return f.Start.Add(time.Duration(len(f.Values)) * f.Step) }

// At returns the quantiles of the step that contains t; false if t is outside the horizon.
func (f Forecast) At(t time.Time) (Quantiles, bool) {
	if f.Step <= 0 || t.Before(f.Start) || !t.Before(f.End()) {
		return Quantiles{}, false
	}

	return f.Values[int(t.Sub(f.Start)/f.Step)], true
}

// Quantile returns the forecast at one level as a series; see Quantiles.At for levels between Levels.
func (f Forecast) Quantile(level float64) series.Series {
	out := series.Series{Start: f.Start, Step: f.Step, Values: make([]float64, len(f.Values))}
	for i, q := range f.Values {
		out.Values[i] = q.At(level)
	}

	return out
}

// Max returns the highest value at a level within [from, to); false if the forecast has no step in it.
func (f Forecast) Max(level float64, from, to time.Time) (float64, bool) {
	if f.Step <= 0 || len(f.Values) == 0 || !from.Before(to) {
		return 0, false
	}

	highest := 0.0
	found := false

	first := 0
	if from.After(f.Start) {
		first = int(from.Sub(f.Start) / f.Step)
	}

	for i := first; i < len(f.Values) && f.Start.Add(time.Duration(i)*f.Step).Before(to); i++ {
		highest = math.Max(highest, f.Values[i].At(level))
		found = true
	}

	return highest, found
}

// Span formats a duration for messages: "3h", "15m", "1h30m".
func Span(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}

	return text
}

// Algorithm forecasts a time series from its history.
//
// Forecast uses the history alone (its last value is "now"), keeps no reference to it, and returns the horizon after
// history.End() at the step of the history. It is deterministic and safe for concurrent use. It returns an error if
// the input cannot be used (see Check), or one that wraps ErrDeclined if the algorithm declines; the algorithms that
// Crane acts on never decline.
type Algorithm interface {
	// Name returns the name of the algorithm in the registry.
	Name() string
	// Forecast returns the quantiles of the steps in [history.End(), history.End()+horizon).
	Forecast(history series.Series, horizon time.Duration) (Forecast, error)
}

// Limits of accepted input. They bound the memory and time of one forecast for any input.
const (
	// MaxSamples is the maximum number of history samples used; of a longer history only the last MaxSamples. 35 days
	// at 15 s is 201,600.
	MaxSamples = 250_000
	// MaxSteps is the longest forecast: 35 days at 15 s.
	MaxSteps = 201_600
	// MinStep and MaxStep bound the step.
	MinStep = time.Second
	MaxStep = 24 * time.Hour
	// MaxValue is the largest accepted sample; larger ones are gaps. An exbibyte is 1.15e18.
	MaxValue = 1e30
)

// Errors of unusable input and of algorithms that decline. Test with errors.Is.
var (
	// ErrEmpty means that the history has no usable sample.
	ErrEmpty = errors.New("no usable sample in the history")
	// ErrStep means that the step of the history is outside of [MinStep, MaxStep].
	ErrStep = errors.New("step out of range")
	// ErrHorizon means that the horizon is not positive or needs more than MaxSteps steps.
	ErrHorizon = errors.New("horizon out of range")
	// ErrDeclined means that an algorithm that may decline to forecast did so.
	ErrDeclined = errors.New("no forecast issued")
)

// Usable reports whether a sample is finite, not negative and at most MaxValue. Other samples are gaps.
func Usable(v float64) bool { return v >= 0 && v <= MaxValue }

// Check returns an error for input that no algorithm can use, and otherwise the history, cut to its last MaxSamples.
// A history needs at least one usable sample; gaps, zeros, spikes and constants are accepted.
func Check(history series.Series, horizon time.Duration) (series.Series, error) {
	if len(history.Values) == 0 {
		return series.Series{}, fmt.Errorf("%w: it is empty", ErrEmpty)
	}

	if history.Step < MinStep || history.Step > MaxStep {
		return series.Series{}, fmt.Errorf("%w: %s is not within %s and %s", ErrStep, history.Step, MinStep, MaxStep)
	}

	if horizon <= 0 || Steps(horizon, history.Step) > MaxSteps {
		return series.Series{}, fmt.Errorf("%w: %s at a step of %s is not within 1 and %d steps",
			ErrHorizon, horizon, history.Step, MaxSteps)
	}

	// The newest samples count; the oldest of a history that is too long are left out.
	if extra := len(history.Values) - MaxSamples; extra > 0 {
		history = series.Series{Start: history.Time(extra), Step: history.Step, Values: history.Values[extra:]}
	}

	for _, v := range slices.Backward(history.Values) {
		if Usable(v) {
			return history, nil
		}
	}

	return series.Series{}, fmt.Errorf("%w: all %d samples are gaps, negative or out of range",
		ErrEmpty, len(history.Values))
}

// Steps returns how many steps a horizon has, rounded up; 0 where either is not positive.
func Steps(horizon, step time.Duration) int {
	if horizon <= 0 || step <= 0 {
		return 0
	}

	return int((horizon-1)/step) + 1
}

// Ordered returns valid quantiles: an unusable value is replaced by that of the next lower level (0 for the first),
// and no level is below a lower one.
func (q Quantiles) Ordered() Quantiles {
	floor := 0.0
	for i, v := range q {
		if !Usable(v) || v < floor {
			v = floor
		}
		if math.IsNaN(v) {
			v = 0
		}

		q[i] = v
		floor = v
	}

	return q
}
