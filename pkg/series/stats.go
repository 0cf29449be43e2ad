// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"math"
	"slices"
)

// Summary holds the plain statistics of the samples of a series, gaps left out.
type Summary struct {
	// Count is the number of samples, Gaps the number of missing ones.
	Count, Gaps int
	// Sum, Mean, Min and Max are in the unit of the series; 0 where Count is 0.
	Sum, Mean, Min, Max float64
}

// Summarize returns the plain statistics of s in one pass.
func (s Series) Summarize() Summary {
	out := Summary{Min: math.Inf(1), Max: math.Inf(-1)}
	for _, v := range s.Values {
		if IsGap(v) {
			out.Gaps++
			continue
		}
		out.Count++
		out.Sum += v
		out.Min, out.Max = min(out.Min, v), max(out.Max, v)
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
