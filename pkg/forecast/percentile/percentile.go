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
	"crane.io/crane/pkg/forecast/internal/option"
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

// Forecast implements forecast.Algorithm: every step has the same quantiles, each with margin and target utilization.
func (a *Algorithm) Forecast(history series.Series, horizon time.Duration) (forecast.Forecast, error) {
	history, err := forecast.Check(history, horizon)
	if err != nil {
		return forecast.Forecast{}, err
	}

	samples, reason := a.samples(history)

	// There is one distribution for the whole horizon.
	var q forecast.Quantiles
	for i, level := range forecast.Levels() {
		q[i] = a.scale(quantile(samples, level))
	}

	q = q.Ordered()
	out := forecast.Forecast{
		Start:   history.End(),
		Step:    history.Step,
		Model:   "percentile",
		Skill:   math.NaN(),
		Reason:  reason,
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
	perSample := max(1, int(a.config.interval/history.Step))
	length := len(history.Values)
	keep := min(length, int(a.config.history/history.Step))
	out := make([]sample, 0, keep/perSample+1)

	// Samples are averaged to the interval of the settings from the newest on, so that their ages do not depend on the length of the history.
	collect := func(from int) {
		for end := length; end > from; end -= perSample {
			mean := 0.0
			n := 0
			for _, v := range history.Values[max(from, end-perSample):end] {
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
		sum += s.weight
		if sum >= level*total {
			return s.value
		}
	}

	return sorted[len(sorted)-1].value
}

// Options are the settings in the form of API objects; empty fields mean the default.
type Options struct {
	// HistoryLength is the length of history used; default 7d, from 1m to 366d.
	HistoryLength string
	// SampleInterval is the distance of two samples; default 1m, up to 24h. Finer histories are averaged to it.
	SampleInterval string
	// MinSampleWeight is the least weight of a sample; default 0.00001. Samples weigh by age alone here, so that it only
	// is validated: gocrane weighed them by their value, which pushed every percentile up.
	MinSampleWeight string
	// MarginFraction is added on top of the percentile; default 0, from 0 to 100.
	MarginFraction string
	// Percentile is the percentile of Estimate as a fraction; default 0.99, above 0 and up to 1.
	Percentile string
	// TargetUtilization divides the result; default 1, above 0 and up to 1.
	TargetUtilization string
	Histogram         Histogram
}

// Histogram sets the resolution of values.
type Histogram struct {
	// MaxValue is the start of the last bucket. Values beyond it keep their own value: gocrane cut them to it.
	MaxValue string
	// Epsilon is the weight below which a sample is ignored; default 1e-10.
	Epsilon string
	// HalfLife is the age at which a sample counts half; default 24h.
	HalfLife string
	// BucketSize selects buckets of equal width, FirstBucketSize and BucketSizeGrowthRatio buckets of growing width;
	// both require MaxValue. A value then counts as the upper end of its bucket. Without buckets values are exact.
	BucketSize, FirstBucketSize, BucketSizeGrowthRatio string
}

// Defaults of gocrane, except that history and interval may be left out and the half-life is used.
const (
	defaultHistory         = 7 * 24 * time.Hour
	defaultInterval        = time.Minute
	defaultHalfLife        = 24 * time.Hour
	defaultPercentile      = 0.99
	defaultMinSampleWeight = 1e-5
	defaultEpsilon         = 1e-10
	longestHistory         = 366 * 24 * time.Hour
	largest                = 1e30
)

// config is the parsed Options.
type config struct {
	history, interval, halfLife time.Duration
	epsilon                     float64
	percentile, margin, target  float64
	bucket, growth              float64 // size of the first bucket, 0 without buckets; growth ratio, 0 for one width
}

func (o Options) parse() (config, error) {
	r := &option.Reader{}
	const tiny = 1e-9
	c := config{
		history:    r.Duration("historyLength", o.HistoryLength, defaultHistory, time.Minute, longestHistory),
		interval:   r.Duration("sampleInterval", o.SampleInterval, defaultInterval, time.Second, 24*time.Hour),
		halfLife:   r.Duration("histogram.halfLife", o.Histogram.HalfLife, defaultHalfLife, time.Second, longestHistory),
		epsilon:    r.Number("histogram.epsilon", o.Histogram.Epsilon, defaultEpsilon, 0, 1),
		percentile: r.Number("percentile", o.Percentile, defaultPercentile, tiny, 1),
		margin:     r.Number("marginFraction", o.MarginFraction, 0, 0, 100),
		target:     r.Number("targetUtilization", o.TargetUtilization, 1, tiny, 1),
	}

	// The minimum sample weight has no effect, but an invalid one is an error.
	r.Number("minSampleWeight", o.MinSampleWeight, defaultMinSampleWeight, 0, largest)

	maxValue := r.Number("histogram.maxValue", o.Histogram.MaxValue, 0, 0, largest)
	width := r.Number("histogram.bucketSize", o.Histogram.BucketSize, 0, tiny, largest)
	first := r.Number("histogram.firstBucketSize", o.Histogram.FirstBucketSize, 0, tiny, largest)
	growth := r.Number("histogram.bucketSizeGrowthRatio", o.Histogram.BucketSizeGrowthRatio, 0, tiny, 10)

	switch {
	case (width > 0 || first > 0 || growth > 0) && !(maxValue > 0):
		r.Fail("histogram.maxValue", o.Histogram.MaxValue, "is needed with bucket sizes and must be more than 0")
	case (first > 0) != (growth > 0):
		r.Fail("histogram.firstBucketSize", o.Histogram.FirstBucketSize, "goes together with bucketSizeGrowthRatio")
	case first > 0:
		c.bucket = first
		c.growth = growth
	case width > 0:
		c.bucket = width
	}

	return c, r.Err()
}
