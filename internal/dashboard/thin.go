// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"math"

	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/pkg/series"
)

// Thin converts a series to at most points values: neighboring samples are merged, and the smallest and the largest of them are kept in
// their order, so that no extreme is lost. A gap is kept as null where all merged samples are gaps.
func Thin(s series.Series, points int) (out contract.Series, thinned bool) {
	n := len(s.Values)
	if n <= points {
		for i, v := range s.Values {
			out.T = append(out.T, s.Time(i).Unix())
			out.V = append(out.V, known(v))
		}

		return out, false
	}

	// The lowest and the highest value of each bucket keep the peaks that a mean would hide.
	buckets := max(points/2, 1)
	for b := range buckets {
		from := b * n / buckets
		to := (b + 1) * n / buckets
		low := -1

		high := -1
		for i := from; i < to; i++ {
			v := s.Values[i]
			if math.IsNaN(v) {
				continue
			}

			if low < 0 || v < s.Values[low] {
				low = i
			}
			if high < 0 || v > s.Values[high] {
				high = i
			}
		}

		if low < 0 {
			out.T = append(out.T, s.Time(from).Unix())
			out.V = append(out.V, nil)
			continue
		}

		for _, i := range []int{min(low, high), max(low, high)} {
			if k := len(out.T); k > 0 && out.T[k-1] == s.Time(i).Unix() {
				continue
			}

			out.T = append(out.T, s.Time(i).Unix())
			out.V = append(out.V, known(s.Values[i]))
		}
	}

	return out, true
}

func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}

	return &v
}
