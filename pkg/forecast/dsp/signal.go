// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dsp

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/dsp/fourier"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

// signal is a history without gaps and outliers, at the interval of the algorithm.
type signal struct {
	step   time.Duration
	values []float64
}

func (s *signal) rate() float64 { return 1 / s.step.Seconds() }

func (s *signal) perDay() int { return max(1, int(24*time.Hour/s.step)) }

// minCoverage is the share of samples that there must be; the rest is interpolated.
const minCoverage = 0.5

// prepare averages to the interval, interpolates gaps and clips outliers beyond the 0.1st and the 99.9th percentile.
// It returns a reason if the history cannot be used.
func prepare(history series.Series, interval time.Duration) (*signal, string) {
	if length := time.Duration(len(history.Values)) * history.Step; length < minHistory {
		return nil, fmt.Sprintf("history %s of %s needed", forecast.Span(length.Round(time.Minute)), forecast.Span(minHistory))
	}

	perInterval := max(1, int(interval/history.Step))
	s := &signal{step: time.Duration(perInterval) * history.Step}
	first := len(history.Values) % perInterval

	// Intervals are counted from the end, so that the newest one is complete.
	means := make([]float64, 0, len(history.Values)/perInterval)
	for i := first; i < len(history.Values); i += perInterval {
		mean := 0.0
		n := 0
		for _, v := range history.Values[i : i+perInterval] {
			if forecast.Usable(v) {
				n++
				mean += (v - mean) / float64(n)
			}
		}

		if n == 0 {
			mean = series.Gap()
		} else {
			means = append(means, mean)
		}

		s.values = append(s.values, mean)
	}

	if float64(len(means)) < minCoverage*float64(len(s.values)) {
		return nil, fmt.Sprintf("%d of %d samples are gaps", len(s.values)-len(means), len(s.values))
	}

	interpolate(s.values)
	low := series.Quantile(means, 0.001)
	high := series.Quantile(means, 0.999)
	for i, v := range s.values {
		s.values[i] = min(high, max(low, v))
	}

	return s, ""
}

// interpolate fills gaps linearly, and those at the ends with the nearest value.
func interpolate(values []float64) {
	last := -1
	for i, v := range values {
		if series.IsGap(v) {
			continue
		}

		for j := last + 1; j < i; j++ {
			values[j] = v
			if last >= 0 {
				values[j] = values[last] + (v-values[last])*float64(j-last)/float64(i-last)
			}
		}

		last = i
	}

	for j := last + 1; j < len(values) && last >= 0; j++ {
		values[j] = values[last]
	}
}

// A period is a peak of the autocorrelation of at least leastCorrelation that exceeds the valley before it by
// peakDepth. Of the peaks within peakTolerance of the highest the shortest is used: its multiples add nothing.
const (
	minCorrelation = 0.3
	peakDepth      = 0.2
	peakTolerance  = 0.05
	// coarseStep is the resolution at which periods are looked for first.
	coarseStep = 15 * time.Minute
)

// period returns the period in samples, at most half of the history, or a reason if there is none.
func (s *signal) period() (int, string) {
	// Peaks are looked for in coarse cells, whose transform is cheap, and refined in samples.
	perCell := max(1, int(coarseStep/s.step))

	coarse := make([]float64, len(s.values)/perCell)
	for i := range coarse {
		for _, v := range s.values[i*perCell : (i+1)*perCell] {
			coarse[i] += v / float64(perCell)
		}
	}

	correlation := autocorrelation(coarse)
	if correlation == nil {
		return 0, "constant"
	}

	var peaks []int
	highest := 0.0
	valley := 1.0
	for lag := 1; lag+1 < len(correlation); lag++ {
		c := correlation[lag]
		valley = min(valley, c)
		// At half of the history a longer lag drops samples at the ends, which alone may raise the correlation.
		isLast := lag+2 == len(correlation)
		if c >= minCorrelation && c-valley >= peakDepth && c >= correlation[lag-1] && (c >= correlation[lag+1] || isLast) {
			peaks = append(peaks, lag)
			highest = max(highest, c)
		}
	}

	shortest := slices.IndexFunc(peaks, func(lag int) bool { return correlation[lag] >= highest-peakTolerance })
	if shortest < 0 {
		return 0, "not periodic"
	}

	found := s.snap(s.refine(peaks[shortest]*perCell, perCell))
	isDaily := slices.ContainsFunc(peaks, func(lag int) bool { return s.isNear(lag*perCell, day) })
	if isDaily && s.isPartOfUnseenWeek(found) {
		return s.samples(day), ""
	}

	return found, ""
}

const day = 24 * time.Hour

// samples returns the number of samples of a time span.
func (s *signal) samples(span time.Duration) int {
	return int(math.Round(float64(span) / float64(s.step)))
}

// isNear reports whether a period is about as long as a time span.
func (s *signal) isNear(period int, span time.Duration) bool {
	samples := float64(s.samples(span))
	return math.Abs(float64(period)-samples) <= snapTolerance*samples
}

// isPartOfUnseenWeek reports whether a period is of several days in a history of less than two weeks: a weekly load then looks most like itself
// after six days or so, at which the next days are other days of the week.
func (s *signal) isPartOfUnseenWeek(period int) bool {
	const weekdays = 7
	if len(s.values) >= 2*s.samples(weekdays*day) {
		return false
	}

	for days := 2; days <= weekdays; days++ {
		if s.isNear(period, time.Duration(days)*day) {
			return true
		}
	}

	return false
}

// snapTolerance is how far a period may be from a day or a week to be taken for it, as a share: what people do repeats by the calendar.
const snapTolerance = 0.03

// snap returns a day or a week for a period that is close to it, where the history has two of them.
func (s *signal) snap(period int) int {
	for _, season := range []time.Duration{day, 7 * day} {
		samples := s.samples(season)
		if s.isNear(period, season) && 2*samples <= len(s.values) {
			return samples
		}
	}

	return period
}

// refine looks for the best lag in samples around one that was found at a coarser step.
func (s *signal) refine(coarseLag, reach int) int {
	bestLag := coarseLag
	score := -1.0

	mean := 0.0
	for i, v := range s.values {
		mean += (v - mean) / float64(i+1)
	}

	for lag := max(1, coarseLag-reach); reach > 1 && lag <= min(len(s.values)/2, coarseLag+reach); lag++ {
		if c := overlap(s.values, lag, mean); c > score {
			bestLag = lag
			score = c
		}
	}

	return bestLag
}

// overlap is the correlation of the parts of the values that overlap at a lag, each with its own variance: unlike the
// autocorrelation it has no bias toward shorter or longer lags.
func overlap(values []float64, lag int, mean float64) float64 {
	var product, first, second float64
	later := values[lag:]
	for i, v := range later {
		a := values[i] - mean
		b := v - mean
		product += a * b
		first += a * a
		second += b * b
	}

	if !(first > 0 && second > 0) {
		return 0
	}

	return product / (math.Sqrt(first) * math.Sqrt(second))
}

// autocorrelation returns the autocorrelation at lags up to half of the length, and at the next one, by which a peak there is recognized; nil where the values do not vary. The
// transform is padded with zeros, so that the end does not meet the beginning.
func autocorrelation(values []float64) []float64 {
	n := len(values)
	mean := 0.0
	for i, v := range values {
		mean += (v - mean) / float64(i+1)
	}

	size := 1
	for size < 2*n {
		size *= 2
	}

	padded := make([]float64, size)
	scale := 0.0
	for i, v := range values {
		padded[i] = v - mean
		scale = max(scale, padded[i], -padded[i])
	}

	if !(scale > 1e-9*mean) {
		return nil
	}

	// Values of any unit are scaled to 1, so that their squares neither overflow nor vanish.
	for i := range n {
		padded[i] /= scale
	}

	fft := fourier.NewFFT(size)
	coefficients := fft.Coefficients(nil, padded)
	for i, c := range coefficients {
		coefficients[i] = complex(real(c)*real(c)+imag(c)*imag(c), 0)
	}

	out := fft.Sequence(nil, coefficients)[:n/2+2]
	variance := out[0]
	for lag := range out {
		out[lag] *= float64(n) / (variance * float64(n-lag))
	}

	return out
}
