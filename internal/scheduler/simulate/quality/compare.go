// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package quality

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Estimate is a mean over seeds with the half width of its 95 % interval (Student's t). Interval is 0 for one seed, of which
// nothing is known.
type Estimate struct {
	Mean     float64 `json:"mean"`
	Interval float64 `json:"interval95"`
}

// Over estimates the mean of values; NaN and infinite ones are left out. It is zero for none.
func Over(values []float64) Estimate {
	kept := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			kept = append(kept, v)
		}
	}
	if len(kept) == 0 {
		return Estimate{}
	}
	n, sum, squares := float64(len(kept)), 0.0, 0.0
	for _, v := range kept {
		sum += v
	}
	mean := sum / n
	if n == 1 {
		return Estimate{Mean: mean}
	}
	for _, v := range kept {
		squares += (v - mean) * (v - mean)
	}
	return Estimate{Mean: mean, Interval: studentQuantile(0.975, n-1) * math.Sqrt(squares/(n-1)/n)}
}

// studentQuantile is the quantile p > 0.5 of Student's t. Package distuv has it too, but links all of linear algebra.
func studentQuantile(p, degrees float64) float64 {
	x := mathext.InvRegIncBeta(degrees/2, 0.5, 2*(1-p))
	return math.Sqrt(degrees * (1 - x) / x)
}

// Closed is the share of the gap from the worse to the better value that x closes: 0 at the worse, 1 at the better. It is NaN
// where there is no gap, which is where worse is not above better.
func Closed(worse, better, x float64) float64 {
	if !(worse > better) {
		return math.NaN()
	}
	return (worse - x) / (worse - better)
}

// Summary is one policy over all seeds, beside the default profile and the oracle of the same seeds.
type Summary struct {
	Sigma         Estimate `json:"sigma"`
	SigmaRatio    Estimate `json:"sigmaOfDefault"`
	SigmaClosed   Estimate `json:"sigmaGapClosed"`
	Hot           Estimate `json:"nodeMinutesAbove80"`
	HotClosed     Estimate `json:"nodeMinutesAbove80GapClosed"`
	Warm          Estimate `json:"nodeMinutesAbove65"`
	Mean          Estimate `json:"meanUtilisation"`
	Throttled     Estimate `json:"throttledCoreMinutes"`
	InUse         Estimate `json:"nodesInUse"`
	Unschedulable Estimate `json:"unschedulable"`
	Waited        Estimate `json:"waitedPodMinutes"`
	Moves         Estimate `json:"moves"`
	// LikeDefault is the number of seeds in which every placement was that of the default profile.
	LikeDefault int `json:"seedsPlacedLikeDefault"`
}

// Summarise compares runs seed by seed with those of the default profile and of the oracle; either may be nil, then the
// comparisons with it are zero. All have the same length.
func Summarise(runs, normal, oracle []Run) Summary {
	over := func(f func(i int) float64) Estimate {
		values := make([]float64, len(runs))
		for i := range values {
			values[i] = f(i)
		}
		return Over(values)
	}
	s := Summary{
		Sigma:         over(func(i int) float64 { return runs[i].Sigma }),
		Hot:           over(func(i int) float64 { return runs[i].Hot }),
		Warm:          over(func(i int) float64 { return runs[i].Warm }),
		Mean:          over(func(i int) float64 { return runs[i].Mean }),
		Throttled:     over(func(i int) float64 { return runs[i].Throttled }),
		InUse:         over(func(i int) float64 { return runs[i].InUse }),
		Unschedulable: over(func(i int) float64 { return float64(runs[i].Unschedulable) }),
		Waited:        over(func(i int) float64 { return runs[i].Waited }),
		Moves:         over(func(i int) float64 { return float64(runs[i].Moves) }),
	}
	if normal == nil {
		return s
	}
	s.SigmaRatio = over(func(i int) float64 { return runs[i].Sigma / normal[i].Sigma })
	for i := range runs {
		if runs[i].Placements == normal[i].Placements {
			s.LikeDefault++
		}
	}
	if oracle != nil {
		s.SigmaClosed = over(func(i int) float64 { return Closed(normal[i].Sigma, oracle[i].Sigma, runs[i].Sigma) })
		s.HotClosed = over(func(i int) float64 { return Closed(normal[i].Hot, oracle[i].Hot, runs[i].Hot) })
	}
	return s
}
