// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package percentile implements the algorithm "percentile": one distribution of the recent past, with age-weighted
// percentiles, for the whole horizon. It accepts gocrane's settings and fixes their effect: the half-life decays,
// samples are not weighted by value, and nothing saturates.
package percentile

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

// Algorithm implements forecast.Algorithm; New returns one.
type Algorithm struct {
	config config
}

// New parses the settings. The error lists every invalid field with its path, its value and the allowed values.
func New(o Options) (*Algorithm, error) {
	c, err := o.parse()
	if err != nil {
		return nil, fmt.Errorf("percentile: %w", err)
	}
	return &Algorithm{config: c}, nil
}

// Name implements forecast.Algorithm.
func (a *Algorithm) Name() string { return "percentile" }

type sample struct {
	value, weight float64
}

// Forecast implements forecast.Algorithm: every step has the same quantiles, each with margin and target utilisation.
func (a *Algorithm) Forecast(history series.Series, horizon time.Duration) (forecast.Forecast, error) {
	history, err := forecast.Check(history, horizon)
	if err != nil {
		return forecast.Forecast{}, err
	}
	samples, reason := a.samples(history)
	var q forecast.Quantiles
	for i, level := range forecast.Levels() {
		q[i] = a.scale(quantile(samples, level))
	}
	q = q.Ordered()
	out := forecast.Forecast{
		Start: history.End(), Step: history.Step, Model: "percentile", Skill: math.NaN(), Reason: reason,
		Periods: int(time.Duration(len(history.Values)) * history.Step / (24 * time.Hour)),
		Values:  make([]forecast.Quantiles, forecast.Steps(horizon, history.Step)),
	}
	for i := range out.Values {
		out.Values[i] = q
	}
	return out, nil
}

// Estimate returns the prediction as defined by gocrane: the configured percentile with margin and target
// utilization.
func (a *Algorithm) Estimate(history series.Series) (float64, error) {
	history, err := forecast.Check(history, history.Step)
	if err != nil {
		return 0, err
	}
	samples, _ := a.samples(history)
	return min(forecast.MaxValue, a.scale(quantile(samples, a.config.percentile))), nil
}

func (a *Algorithm) scale(v float64) float64 {
	return a.upperEnd(v) * (1 + a.config.margin) / a.config.target
}

// upperEnd returns the upper end of the bucket of a value.
func (a *Algorithm) upperEnd(v float64) float64 {
	c := a.config
	switch {
	case c.bucket == 0:
		return v
	case c.growth == 0:
		return (math.Floor(v/c.bucket) + 1) * c.bucket
	}
	// Bucket n ends at first * ((1+growth)^(n+1) - 1) / growth.
	ratio := 1 + c.growth
	n := math.Floor(math.Log(v*c.growth/c.bucket+1) / math.Log(ratio))
	return c.bucket * (math.Pow(ratio, n+1) - 1) / c.growth
}

// samples returns the samples within the history length with their weights by age, sorted by value. Where that leaves
// none, all of the history is used.
func (a *Algorithm) samples(history series.Series) ([]sample, string) {
	per := max(1, int(a.config.interval/history.Step))
	length := len(history.Values)
	keep := min(length, int(a.config.history/history.Step))
	out := make([]sample, 0, keep/per+1)
	collect := func(from int) {
		for end := length; end > from; end -= per {
			mean, n := 0.0, 0
			for _, v := range history.Values[max(from, end-per):end] {
				if forecast.Usable(v) {
					n++
					mean += (v - mean) / float64(n)
				}
			}
			age := time.Duration(length-end) * history.Step
			weight := math.Exp2(-age.Seconds() / a.config.halfLife.Seconds())
			if n > 0 && (weight >= a.config.epsilon || len(out) == 0) {
				out = append(out, sample{mean, max(weight, math.SmallestNonzeroFloat32)})
			}
		}
	}
	collect(length - keep)
	reason := ""
	if len(out) == 0 {
		collect(0)
		reason = "no sample within the history length: older ones were used"
	}
	slices.SortFunc(out, func(x, y sample) int { return cmp.Compare(x.value, y.value) })
	return out, reason
}

// quantile returns the smallest value with a share of the weight at or below it.
func quantile(sorted []sample, level float64) float64 {
	total := 0.0
	for _, s := range sorted {
		total += s.weight
	}
	sum := 0.0
	for _, s := range sorted {
		if sum += s.weight; sum >= level*total {
			return s.value
		}
	}
	return sorted[len(sorted)-1].value
}
