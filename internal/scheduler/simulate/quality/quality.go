// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quality measures how well a simulated cluster was scheduled, from the true usage of nodes, and compares
// runs over seeds. It does not depend on the scheduler.
package quality

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/mathext"
)

// Marks above which a node counts as hot, as shares of its CPU.
const (
	warm = 0.65
	hot  = 0.80
)

// Run is what was measured in one run. Times and shares of CPU are of true use.
type Run struct {
	// Sigma is the mean over time of the standard deviation over nodes of CPU utilization, 0 to 1; Sigma95 its 95th
	// percentile over time.
	Sigma   float64 `json:"sigma"`
	Sigma95 float64 `json:"sigma95"`
	// Mean is the mean CPU utilization over nodes and time.
	Mean float64 `json:"mean"`
	// Hot and Warm are node-minutes above 80 % and above 65 %.
	Hot  float64 `json:"nodeMinutesAbove80"`
	Warm float64 `json:"nodeMinutesAbove65"`
	// Peak is the highest utilization of a node at a time.
	Peak float64 `json:"peak"`
	// Throttled is demand beyond capacity, in core-minutes.
	Throttled float64 `json:"throttledCoreMinutes"`
	// Nodes in use: the mean over time of the share of nodes that run a pod.
	InUse float64 `json:"nodesInUse"`
	// Placed pods, over the whole run. Unschedulable are those of them that found no node at once; Waited is the sum of what
	// they waited, in minutes, over the measured time.
	Placed        int     `json:"placed"`
	Unschedulable int     `json:"unschedulable"`
	Waited        float64 `json:"waitedPodMinutes"`
	// Moves of running pods by rebalancing.
	Moves int `json:"moves"`
	// Patches of nodes by the writer of metrics.
	Patches int `json:"patches"`
	// Placements is a digest of which pod went where and when: runs with the same digest decided the same.
	Placements string `json:"placements"`
	// Course is sigma at each minute of the measured time, for charts.
	Course []float64 `json:"-"`
}

// Tally adds up samples of a cluster into a Run. The zero Tally is ready.
type Tally struct {
	course                           []float64
	mean, hot, warm, throttled, used float64
	peak                             float64
	minutes                          float64
}

// Add counts one sample that stands for a span of time: the demand for CPU of each node as a share of capacity (above 1 where
// there is not enough), the capacities in thousandths of a core, and how many nodes run pods.
func (t *Tally) Add(demand []float64, milli []int64, inUse int, span time.Duration) {
	minutes := span.Minutes()
	var sum, squares float64
	for i, d := range demand {
		u := min(1, d)
		sum += u
		squares += u * u

		if u > hot {
			t.hot += minutes
		}
		if u > warm {
			t.warm += minutes
		}

		t.throttled += max(0, d-1) * float64(milli[i]) / 1000 * minutes
		t.peak = max(t.peak, u)
	}

	n := float64(len(demand))
	mean := sum / n
	t.course = append(t.course, math.Sqrt(max(0, squares/n-mean*mean)))
	t.mean += mean * minutes
	t.used += float64(inUse) / n * minutes
	t.minutes += minutes
}

// Run returns what was added up; samples are taken to be equally long.
func (t *Tally) Run() Run {
	r := Run{Course: t.course}
	if len(t.course) == 0 {
		return r
	}

	for _, s := range t.course {
		r.Sigma += s / float64(len(t.course))
	}

	sorted := slices.Sorted(slices.Values(t.course))
	r.Sigma95 = sorted[(len(sorted)*95+99)/100-1]
	r.Mean = t.mean / t.minutes
	r.InUse = t.used / t.minutes
	r.Hot = t.hot
	r.Warm = t.warm
	r.Throttled = t.throttled
	r.Peak = t.peak

	return r
}

// Estimate is a mean over seeds with the half width of its 95 % interval (Student's t). Interval is 0 for one seed, of which
// nothing is known.
type Estimate struct {
	Mean     float64 `json:"mean"`
	Interval float64 `json:"interval95"`
}

// Over estimates the mean of values; NaN and infinite ones are left out. It is zero for none.
func Over(values []float64) Estimate {
	finite := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			finite = append(finite, v)
		}
	}

	if len(finite) == 0 {
		return Estimate{}
	}

	n := float64(len(finite))
	sum := 0.0
	for _, v := range finite {
		sum += v
	}

	mean := sum / n
	if n == 1 {
		return Estimate{Mean: mean}
	}

	// Few seeds are usual, so that the interval is Student's and not the normal distribution's.
	squares := 0.0
	for _, v := range finite {
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

// Summarize compares runs seed by seed with those of the default profile and of the oracle; either may be nil, then the
// comparisons with it are zero. All have the same length.
func Summarize(runs, normal, oracle []Run) Summary {
	estimate := func(f func(i int) float64) Estimate {
		values := make([]float64, len(runs))
		for i := range values {
			values[i] = f(i)
		}

		return Over(values)
	}

	s := Summary{
		Sigma:         estimate(func(i int) float64 { return runs[i].Sigma }),
		Hot:           estimate(func(i int) float64 { return runs[i].Hot }),
		Warm:          estimate(func(i int) float64 { return runs[i].Warm }),
		Mean:          estimate(func(i int) float64 { return runs[i].Mean }),
		Throttled:     estimate(func(i int) float64 { return runs[i].Throttled }),
		InUse:         estimate(func(i int) float64 { return runs[i].InUse }),
		Unschedulable: estimate(func(i int) float64 { return float64(runs[i].Unschedulable) }),
		Waited:        estimate(func(i int) float64 { return runs[i].Waited }),
		Moves:         estimate(func(i int) float64 { return float64(runs[i].Moves) }),
	}

	if normal == nil {
		return s
	}

	// Ratios and gaps are computed within a seed, because seeds differ more than policies do.
	s.SigmaRatio = estimate(func(i int) float64 { return runs[i].Sigma / normal[i].Sigma })
	for i := range runs {
		if runs[i].Placements == normal[i].Placements {
			s.LikeDefault++
		}
	}

	if oracle != nil {
		s.SigmaClosed = estimate(func(i int) float64 { return Closed(normal[i].Sigma, oracle[i].Sigma, runs[i].Sigma) })
		s.HotClosed = estimate(func(i int) float64 { return Closed(normal[i].Hot, oracle[i].Hot, runs[i].Hot) })
	}

	return s
}
