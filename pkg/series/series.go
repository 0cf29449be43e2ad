// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package series implements time series as plain values: regular grids with explicit gaps, and resampling.
//
// Every other package below pkg/ uses it. It does not depend on the source of samples (see internal/metrics) or on
// their use.
package series

import (
	"math"
	"slices"
	"time"
)

// Series is a regular grid of samples. Values[i] was observed at Start + i*Step; NaN marks a gap. Infinities and
// negative values never enter a Series that a source of Crane made (they are counted as gaps there).
type Series struct {
	// Start is the time of Values[0].
	Start time.Time
	// Step is the distance between two values; > 0 unless the series is empty.
	Step time.Duration
	// Values are the samples in the unit of the series (cores for CPU, bytes for memory).
	Values []float64
}

// Time returns the time of Values[i].
func (s Series) Time(i int) time.Time { return s.Start.Add(time.Duration(i) * s.Step) }

// End returns the time just after the last value: Start + len(Values)*Step.
func (s Series) End() time.Time { return s.Time(len(s.Values)) }

// Gap is the value of a missing sample.
func Gap() float64 { return math.NaN() }

// IsGap reports whether v is a missing sample.
func IsGap(v float64) bool { return math.IsNaN(v) }

// Summary holds the plain statistics of the samples of a series, gaps left out.
type Summary struct {
	// Count is the number of samples, Gaps the number of missing ones.
	Count, Gaps int
	// Sum, Mean, Min and Max are in the unit of the series; 0 where Count is 0.
	Sum, Mean, Min, Max float64
}

// Summarize returns the plain statistics of s.
func (s Series) Summarize() Summary {
	out := Summary{Min: math.Inf(1), Max: math.Inf(-1)}
	for _, v := range s.Values {
		if IsGap(v) {
			out.Gaps++
			continue
		}

		out.Count++
		out.Sum += v
		out.Min = min(out.Min, v)
		out.Max = max(out.Max, v)
	}

	if out.Count == 0 {
		return Summary{Gaps: out.Gaps}
	}

	out.Mean = out.Sum / float64(out.Count)
	return out
}

// Quantile returns the q-quantile (0 <= q <= 1, clamped) of values, gaps left out, with linear interpolation between
// the order statistics around rank q*(n-1) (Hyndman and Fan's type 7). It returns a gap where there is no value. The
// values are not changed.
func Quantile(values []float64, q float64) float64 {
	sorted := make([]float64, 0, len(values))
	for _, v := range values {
		if !IsGap(v) {
			sorted = append(sorted, v)
		}
	}

	slices.Sort(sorted)
	return QuantileSorted(sorted, q)
}

// QuantileSorted is Quantile for values that are sorted and hold no gap; it does not allocate.
func QuantileSorted(sorted []float64, q float64) float64 {
	if len(sorted) == 0 || math.IsNaN(q) {
		return Gap()
	}

	rank := min(max(q, 0), 1) * float64(len(sorted)-1)
	low := int(rank)
	if low >= len(sorted)-1 {
		return sorted[len(sorted)-1]
	}

	return sorted[low] + (rank-float64(low))*(sorted[low+1]-sorted[low])
}
