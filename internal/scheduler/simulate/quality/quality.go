// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quality measures how well a simulated cluster was scheduled, from the true usage of nodes, and compares
// runs over seeds. It does not depend on the scheduler.
package quality

import (
	"math"
	"slices"
	"time"
)

// Marks above which a node counts as hot, as shares of its CPU.
const (
	warm = 0.65
	hot  = 0.80
)

// Run is what was measured in one run. Times and shares of CPU are of true use.
type Run struct {
	// Sigma is the mean over time of the standard deviation over nodes of CPU utilisation, 0 to 1; Sigma95 its 95th
	// percentile over time.
	Sigma   float64 `json:"sigma"`
	Sigma95 float64 `json:"sigma95"`
	// Mean is the mean CPU utilisation over nodes and time.
	Mean float64 `json:"mean"`
	// Hot and Warm are node-minutes above 80 % and above 65 %.
	Hot  float64 `json:"nodeMinutesAbove80"`
	Warm float64 `json:"nodeMinutesAbove65"`
	// Peak is the highest utilisation of a node at a time.
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
	course                      []float64
	mean, hot, warm, over, used float64
	peak                        float64
	minutes                     float64
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
		t.over += max(0, d-1) * float64(milli[i]) / 1000 * minutes
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
	r.Mean, r.InUse = t.mean/t.minutes, t.used/t.minutes
	r.Hot, r.Warm, r.Throttled, r.Peak = t.hot, t.warm, t.over, t.peak
	return r
}
