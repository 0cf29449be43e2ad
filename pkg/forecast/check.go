// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

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
		q[i], floor = v, v
	}
	return q
}
