// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dsp

import (
	"fmt"
	"strings"
	"time"

	"crane.io/crane/pkg/forecast/internal/option"
)

// Options are the settings as strings of API objects; empty fields mean the default.
type Options struct {
	// SampleInterval is the distance of two samples; default 1m, up to 1h. Finer histories are averaged to it.
	SampleInterval string
	// HistoryLength is the length of history used; default 15d, at least 48h.
	HistoryLength string
	// MaxValue and FFT are the estimators to choose from; without any, a built-in list.
	MaxValue []MaxValueOptions
	FFT      []FFTOptions
}

// MaxValueOptions configure an estimator that takes the maximum over all periods at each time of the period.
type MaxValueOptions struct {
	// MarginFraction is added on top; default 0, from 0 to 100.
	MarginFraction string
}

// FFTOptions configure an estimator that keeps the strongest frequencies.
type FFTOptions struct {
	// MarginFraction is added on top; default 0, from 0 to 100.
	MarginFraction string
	// LowAmplitudeThreshold drops frequencies above HighFrequencyThreshold whose amplitude is below it. A plain number is
	// in the unit of the series, as in gocrane; a percentage ("5%") is of the strongest amplitude. Default 5%: gocrane's
	// 1.0 meant one core, one byte or one request a second.
	LowAmplitudeThreshold string
	// HighFrequencyThreshold is the frequency in Hz up to which everything is kept; default 1/3600.
	HighFrequencyThreshold string
	// MinNumOfSpectrumItems and MaxNumOfSpectrumItems bound how many frequencies are kept for their amplitude; defaults 3
	// and 100.
	MinNumOfSpectrumItems, MaxNumOfSpectrumItems *int32
}

const (
	defaultHistory       = 15 * 24 * time.Hour
	minHistory           = 48 * time.Hour
	longestHistory       = 366 * 24 * time.Hour
	defaultInterval      = time.Minute
	longestInterval      = time.Hour
	defaultLowAmplitude  = 0.05
	defaultHighFrequency = 1.0 / 3600
	defaultMinItems      = 3
	defaultMaxItems      = 100
	itemLimit            = 1 << 20
	estimatorLimit       = 50
)

// estimator is one candidate, read.
type estimator struct {
	margin             float64
	maximum            bool // the largest value of all periods, and no spectrum
	amplitude          float64
	relative           bool // the amplitude is a share of the strongest
	frequency          float64
	minItems, maxItems int
}

type config struct {
	interval, history time.Duration
	estimators        []estimator
}

func (o Options) parse() (config, error) {
	r := &option.Reader{}
	c := config{
		interval: r.Duration("sampleInterval", o.SampleInterval, defaultInterval, time.Second, longestInterval),
		history:  r.Duration("historyLength", o.HistoryLength, defaultHistory, minHistory, longestHistory),
	}

	// Each estimator costs a transform in each forecast.
	if n := len(o.MaxValue) + len(o.FFT); n > 2*estimatorLimit {
		r.Fail("estimators", fmt.Sprint(n), fmt.Sprintf("must be at most %d", 2*estimatorLimit))
		return c, r.Err()
	}

	for i, m := range o.MaxValue {
		path := fmt.Sprintf("estimators.maxValue[%d].marginFraction", i)
		c.estimators = append(c.estimators, estimator{maximum: true, margin: r.Number(path, m.MarginFraction, 0, 0, 100)})
	}

	for i, f := range o.FFT {
		c.estimators = append(c.estimators, f.parse(r, fmt.Sprintf("estimators.fft[%d].", i)))
	}

	// Without a choice the estimators are the built-in ones.
	if len(c.estimators) == 0 {
		c.estimators = builtIn()
	}

	return c, r.Err()
}

func (f FFTOptions) parse(r *option.Reader, path string) estimator {
	e := estimator{
		margin:    r.Number(path+"marginFraction", f.MarginFraction, 0, 0, 100),
		amplitude: defaultLowAmplitude,
		relative:  true,
		frequency: r.Number(path+"highFrequencyThreshold", f.HighFrequencyThreshold, defaultHighFrequency, 0, 1e9),
		minItems:  r.Count(path+"minNumOfSpectrumItems", f.MinNumOfSpectrumItems, defaultMinItems, 0, itemLimit),
		maxItems:  r.Count(path+"maxNumOfSpectrumItems", f.MaxNumOfSpectrumItems, defaultMaxItems, 0, itemLimit),
	}

	if e.minItems > e.maxItems {
		r.Fail(path+"minNumOfSpectrumItems", fmt.Sprint(e.minItems), "must be at most maxNumOfSpectrumItems")
	}

	if text := strings.TrimSpace(f.LowAmplitudeThreshold); text != "" {
		number, isShare := strings.CutSuffix(text, "%")
		e.relative = isShare
		if isShare {
			e.amplitude = r.Number(path+"lowAmplitudeThreshold", number, 5, 0, 100) / 100
		} else {
			e.amplitude = r.Number(path+"lowAmplitudeThreshold", number, 0, 0, 1e30)
		}
	}

	return e
}

// builtIn are gocrane's eight without their margins, which quantiles make needless, and with relative thresholds: few
// strong frequencies, more of them, and all.
func builtIn() []estimator {
	return []estimator{
		{amplitude: 0.05, relative: true, frequency: defaultHighFrequency, minItems: defaultMinItems, maxItems: defaultMaxItems},
		{amplitude: 0.01, relative: true, frequency: defaultHighFrequency, minItems: 50, maxItems: defaultMaxItems},
		{amplitude: 0.1, relative: true, frequency: 0, minItems: defaultMinItems, maxItems: defaultMaxItems},
	}
}
