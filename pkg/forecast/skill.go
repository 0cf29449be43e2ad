// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

// SkillLevel is the level of the pinball loss that skill is computed from.
const SkillLevel = 0.95

// skillOrigins is the maximum number of origins of Skill: each weekday once.
const skillOrigins = 7

// Skill replays an algorithm over a history and returns its skill, as defined at Forecast, and the number of origins: up
// to seven, a day apart, each with at least first of history before it. The skill is NaN without an origin. Origins at
// which run returns an error are left out.
func Skill(history series.Series, first time.Duration, run func(series.Series, time.Duration) (Forecast, error)) (float64, int) {
	const horizon = 24 * time.Hour
	day := int(horizon / history.Step)

	loss := 0.0
	reference := 0.0
	count := 0

	// The newest origin has a whole day after it, the others are a day before it each.
	for origin := len(history.Values) - day; day > 0 && origin >= max(1, int(first/history.Step)) && count < skillOrigins; origin -= day {
		past := series.Series{Start: history.Start, Step: history.Step, Values: history.Values[:origin:origin]}
		future := history.Values[origin : origin+day]

		forecasted, err := run(past, horizon)
		if err != nil || len(forecasted.Values) < day {
			continue
		}

		count++
		reference += ConstantLoss(past.Values, future, SkillLevel)

		for i, y := range future {
			if Usable(y) {
				loss += Pinball(y, forecasted.Values[i].At(SkillLevel), SkillLevel)
			}
		}
	}

	if !(reference > 0) {
		return math.NaN(), count
	}

	return 1 - loss/reference, count
}

// ConstantLoss returns the sum of the pinball losses of a constant, the quantile of the past at a level, as the forecast
// of the future. It is 0 without usable samples.
func ConstantLoss(past, future []float64, level float64) float64 {
	usable := slices.DeleteFunc(slices.Clone(past), func(v float64) bool { return !Usable(v) })
	if len(usable) == 0 {
		return 0
	}

	quantile := series.Quantile(usable, level)
	sum := 0.0
	for _, y := range future {
		if Usable(y) {
			sum += Pinball(y, quantile, level)
		}
	}

	return sum
}

// Pinball returns the pinball (quantile) loss of a forecast: level*(y-q) where y is above q, (1-level)*(q-y) where it is
// below. Its expectation is least where q is the level's quantile of y. Koenker and Bassett, 1978.
func Pinball(actual, quantile, level float64) float64 {
	if actual > quantile {
		return level * (actual - quantile)
	}

	return (1 - level) * (quantile - actual)
}
