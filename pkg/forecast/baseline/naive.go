// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package baseline contains the methods that forecasts are compared with: the same minute of an earlier day or week,
// a weighted quantile of the same time of day, and gocrane's spectrum method with its defects.
//
// They are for comparison only: they may be slow, and gocrane's method declines as often as the original returns
// nothing.
package baseline

import (
	"cmp"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

// SeasonalNaive forecasts each step by the value one season earlier, the same at every level.
type SeasonalNaive struct {
	// Label is the algorithm's name.
	Label string
	// Season is the distance to the sample that is repeated; > 0.
	Season time.Duration
}

// Yesterday returns the seasonal naive method of one day.
func Yesterday() SeasonalNaive {
	return SeasonalNaive{Label: "seasonal-naive", Season: 24 * time.Hour}
}

// LastWeek returns the seasonal naive method of seven days. Where there is no week of history it takes the oldest
// whole number of days there is.
func LastWeek() SeasonalNaive {
	return SeasonalNaive{Label: "seasonal-naive-week", Season: 7 * 24 * time.Hour}
}

// Name implements forecast.Algorithm.
func (n SeasonalNaive) Name() string { return n.Label }

// Forecast implements forecast.Algorithm. If the history is shorter than the season, or the sample one season ago is
// a gap, it uses the sample of whole days ago, the oldest first, and otherwise the newest sample.
func (n SeasonalNaive) Forecast(history series.Series, horizon time.Duration) (forecast.Forecast, error) {
	history, err := forecast.Check(history, horizon)
	if err != nil {
		return forecast.Forecast{}, err
	}

	step := history.Step
	length := len(history.Values)
	season := max(1, int(n.Season/step))
	day := max(1, int(24*time.Hour/step))
	last := lastUsable(history.Values)

	out := forecast.Forecast{
		Start:   history.End(),
		Step:    step,
		Model:   n.Label,
		Period:  n.Season,
		Periods: length / season,
		Values:  make([]forecast.Quantiles, forecast.Steps(horizon, step)),
	}

	// What was not measured a season ago is taken from another day, and at last from the newest sample.
	for i := range out.Values {
		v, ok := lookBack(history.Values, length+i, season)
		if !ok {
			v, ok = lookBackDays(history.Values, length+i, day, season)
		}
		if !ok {
			v = last
		}

		out.Values[i] = forecast.Constant(v)
	}

	if out.Periods == 0 {
		out.Reason = "history is shorter than a season"
	}

	return out, nil
}

// lookBack returns the value a season before index i; a horizon beyond one season repeats the last one.
func lookBack(values []float64, i, season int) (float64, bool) {
	for i >= len(values) {
		i -= season
	}

	if i < 0 || !forecast.Usable(values[i]) {
		return 0, false
	}

	return values[i], true
}

func lookBackDays(values []float64, i, day, season int) (float64, bool) {
	for back := (season / day) * day; back >= day; back -= day {
		if v, ok := lookBack(values, i, back); ok {
			return v, true
		}
	}

	return 0, false
}

func lastUsable(values []float64) float64 {
	for _, v := range slices.Backward(values) {
		if forecast.Usable(v) {
			return v
		}
	}

	return 0
}

// The plain method: the weighted quantile of the samples within plainWindow of the same time of day, over up to
// plainDays days, each day weighing plainDecay of the one after it.
const (
	plainWindow = 15 * time.Minute
	plainDays   = 14
	plainDecay  = 0.8
)

// Plain is the reference of skill: a weighted quantile of the same time of day.
type Plain struct{}

// Name implements forecast.Algorithm.
func (Plain) Name() string { return "plain" }

type weighted struct{ value, weight float64 }

// Forecast implements forecast.Algorithm. Where no sample lies within the window it takes all of the history.
func (Plain) Forecast(history series.Series, horizon time.Duration) (forecast.Forecast, error) {
	history, err := forecast.Check(history, horizon)
	if err != nil {
		return forecast.Forecast{}, err
	}

	step := history.Step
	length := len(history.Values)
	day := max(1, int(24*time.Hour/step))

	out := forecast.Forecast{
		Start:   history.End(),
		Step:    step,
		Model:   "plain",
		Period:  24 * time.Hour,
		Periods: length / day,
		Values:  make([]forecast.Quantiles, forecast.Steps(horizon, step)),
	}

	half := int(plainWindow / step)
	atoms := make([]weighted, 0, plainDays*(2*half+1))

	// Each step has the samples around its time of day; a horizon beyond a day repeats.
	for i := range out.Values {
		atoms = atoms[:0]
		for ago := 1; ago <= plainDays; ago++ {
			center := length + i%day - ago*day
			weight := math.Pow(plainDecay, float64(ago-1))
			for j := max(0, center-half); j <= min(length-1, center+half); j++ {
				if forecast.Usable(history.Values[j]) {
					atoms = append(atoms, weighted{history.Values[j], weight})
				}
			}
		}

		if len(atoms) == 0 {
			atoms = all(atoms, history.Values)
			out.Reason = "no sample at some times of day: all of the history was used there"
		}

		out.Values[i] = weightedQuantiles(atoms)
	}

	return out, nil
}

func all(atoms []weighted, values []float64) []weighted {
	for _, v := range values {
		if forecast.Usable(v) {
			atoms = append(atoms, weighted{v, 1})
		}
	}

	return atoms
}

// weightedQuantiles returns, for each level, the smallest value whose cumulative weight reaches the level. It sorts
// atoms in place; atoms must not be empty.
func weightedQuantiles(atoms []weighted) forecast.Quantiles {
	slices.SortFunc(atoms, func(a, b weighted) int { return cmp.Compare(a.value, b.value) })
	total := 0.0
	for _, a := range atoms {
		total += a.weight
	}

	var q forecast.Quantiles
	cumulative := 0.0
	next := 0

	levels := forecast.Levels()
	for _, a := range atoms {
		cumulative += a.weight
		for next < len(levels) && cumulative >= levels[next]*total {
			q[next] = a.value
			next++
		}
	}

	for ; next < len(levels); next++ {
		q[next] = atoms[len(atoms)-1].value
	}

	return q
}
