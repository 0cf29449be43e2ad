// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package percentile

import (
	"time"

	"crane.io/crane/pkg/forecast/internal/option"
)

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
	r.Number("minSampleWeight", o.MinSampleWeight, defaultMinSampleWeight, 0, largest)
	most := r.Number("histogram.maxValue", o.Histogram.MaxValue, 0, 0, largest)
	width := r.Number("histogram.bucketSize", o.Histogram.BucketSize, 0, tiny, largest)
	first := r.Number("histogram.firstBucketSize", o.Histogram.FirstBucketSize, 0, tiny, largest)
	growth := r.Number("histogram.bucketSizeGrowthRatio", o.Histogram.BucketSizeGrowthRatio, 0, tiny, 10)
	switch {
	case (width > 0 || first > 0 || growth > 0) && !(most > 0):
		r.Fail("histogram.maxValue", o.Histogram.MaxValue, "is needed with bucket sizes and must be more than 0")
	case (first > 0) != (growth > 0):
		r.Fail("histogram.firstBucketSize", o.Histogram.FirstBucketSize, "goes together with bucketSizeGrowthRatio")
	case first > 0:
		c.bucket, c.growth = first, growth
	case width > 0:
		c.bucket = width
	}
	return c, r.Err()
}
