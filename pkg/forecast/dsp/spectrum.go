// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dsp

import (
	"cmp"
	"math/cmplx"
	"slices"

	"gonum.org/v1/gonum/dsp/fourier"

	"crane.io/crane/pkg/forecast"
)

// spectrum is the transform of some values. Only frequencies up to half of the sampling rate are kept; their mirror
// images are implied, so no filter can treat the two differently.
type spectrum struct {
	fft          *fourier.FFT
	coefficients []complex128
	amplitudes   []float64 // |X_k|/N
	descending   []float64 // the same without the mean, in descending order
	rate         float64   // samples a second
	length       int
}

func newSpectrum(values []float64, rate float64) *spectrum {
	s := &spectrum{fft: fourier.NewFFT(len(values)), rate: rate, length: len(values)}
	s.coefficients = s.fft.Coefficients(nil, values)
	s.amplitudes = make([]float64, len(s.coefficients))
	for k, c := range s.coefficients {
		s.amplitudes[k] = cmplx.Abs(c) / float64(s.length)
	}

	s.descending = slices.Clone(s.amplitudes[1:])
	slices.SortFunc(s.descending, func(a, b float64) int { return cmp.Compare(b, a) })
	return s
}

// filter returns the values with weak frequencies removed, or for the maximum the largest value of all periods.
func (e estimator) filter(values []float64, s *spectrum, period int) []float64 {
	if e.maximum {
		return highest(values, period)
	}

	// The amplitude decides within the bounds on the number of frequencies.
	threshold := e.amplitude
	if e.relative && len(s.descending) > 0 {
		threshold *= s.descending[0]
	}

	threshold = max(threshold, rankedAmplitude(s.descending, e.maxItems-1))
	if e.minItems > 0 {
		threshold = min(threshold, rankedAmplitude(s.descending, e.minItems-1))
	}

	coefficients := slices.Clone(s.coefficients)
	for k := 1; k < len(coefficients); k++ {
		if s.amplitudes[k] < threshold && float64(k)*s.rate/float64(s.length) > e.frequency {
			coefficients[k] = 0
		}
	}

	out := s.fft.Sequence(nil, coefficients)
	for i := range out {
		out[i] /= float64(s.length)
	}

	return out
}

// rankedAmplitude returns the i-th of descending values; beyond the last it is the last, before the first more than any.
func rankedAmplitude(descending []float64, i int) float64 {
	switch {
	case len(descending) == 0:
		return 0
	case i < 0:
		return 2 * descending[0]
	}

	return descending[min(i, len(descending)-1)]
}

// highest repeats the largest value of each place of the period.
func highest(values []float64, period int) []float64 {
	out := make([]float64, len(values))
	for i := range period {
		largest := 0.0
		for j := i; j < len(values); j += period {
			largest = max(largest, values[j])
		}

		for j := i; j < len(values); j += period {
			out[j] = largest
		}
	}

	return out
}

// estimate returns the forecast of the period after the values, with the margin.
func (e estimator) estimate(values []float64, s *spectrum, period int) []float64 {
	filtered := e.filter(values, s, period)
	out := filtered[len(filtered)-period:]
	for i, v := range out {
		out[i] = max(0, v) * (1 + e.margin)
	}

	return out
}

// errorSegments is how many parts of the period have error quantiles of their own.
const errorSegments = 8

// pastErrors are quantiles of what each period differed from the filtered one before it, by part of the period.
type pastErrors struct {
	perPart int
	parts   [][forecast.NumLevels]float64
}

func newErrors(values, filtered []float64, period, perDay int) *pastErrors {
	parts := max(1, min(errorSegments*max(1, period/perDay), period))
	e := &pastErrors{perPart: (period + parts - 1) / parts}
	sets := make([][]float64, (period+e.perPart-1)/e.perPart)
	for i := period; i < len(values); i++ {
		part := i % period / e.perPart
		sets[part] = append(sets[part], values[i]-max(0, filtered[i-period]))
	}

	e.parts = make([][forecast.NumLevels]float64, len(sets))
	for i, set := range sets {
		slices.Sort(set)
		for l, level := range forecast.Levels() {
			if len(set) > 0 && l > 0 {
				e.parts[i][l] = set[min(len(set)-1, int(level*float64(len(set))))]
			}
		}
	}

	return e
}

// quantiles returns the quantiles at a place of the period, around a median.
func (e *pastErrors) quantiles(position int, median, factor float64) forecast.Quantiles {
	var q forecast.Quantiles
	for l, d := range e.parts[position/e.perPart] {
		q[l] = min(forecast.MaxValue, max(0, median+d)*factor)
	}

	return q.Ordered()
}
