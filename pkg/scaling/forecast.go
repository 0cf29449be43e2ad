// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"time"
)

// MinSkill is the minimum skill (1 is perfect, 0 no better than a constant) of a forecast that is used without a Ledger. Below it a
// forecast amounts to a high constant, which minReplicas expresses more directly.
const MinSkill = 0.1

// Reasons why a forecast is not used.
var (
	// ErrOutdated means that a forecast ended before now, or was made of samples that were too old.
	ErrOutdated = errors.New("the forecast is out of date")
	// ErrNoSkill means that a forecast was no better than a constant on the history of the metric.
	ErrNoSkill = errors.New("the forecast has no skill")
)

// Point is one value of a forecast. It is valid until the next point.
type Point struct {
	At    time.Time
	Value float64
}

// IndexesInWindow returns the range points[from:to] of n points in time order that are valid between now and the end of a window. It
// includes the point that is valid now, whenever it begins, and excludes one that begins when the window ends. The last point is
// valid only until it begins.
func IndexesInWindow(n int, at func(i int) time.Time, now time.Time, window time.Duration) (from, to int) {
	from = sort.Search(n, func(i int) bool { return !at(i).Before(now) })
	if from > 0 && from < n && at(from).After(now) {
		from--
	}

	end := now.Add(window)
	to = from + sort.Search(n-from, func(i int) bool { return !at(from + i).Before(end) })
	return from, to
}

// PeakInWindow returns the maximum of a forecast from now to the end of a window, in the unit of the forecast: the value of
// crane_autoscaling_prediction. The points are in time order; the one that is valid now is included, whenever it begins. The error
// wraps ErrOutdated where the forecast has ended, and ErrNoMetric for a value that is no amount.
func PeakInWindow(points []Point, now time.Time, window time.Duration) (float64, error) {
	peak := 0.0
	found := false
	from, to := IndexesInWindow(len(points), func(i int) time.Time { return points[i].At }, now, window)
	for _, p := range points[from:to] {
		if !(p.Value >= 0) || math.IsInf(p.Value, 0) {
			return 0, fmt.Errorf("the forecast for %s is %v: %w", p.At.UTC().Format(time.RFC3339), p.Value, ErrNoMetric)
		}

		peak = math.Max(peak, p.Value)
		found = true
	}

	switch {
	case found:
		return peak, nil
	case len(points) == 0:
		return 0, fmt.Errorf("the forecast has no values: %w", ErrNoMetric)
	}

	return 0, fmt.Errorf("it ends at %s: %w", points[len(points)-1].At.UTC().Format(time.RFC3339), ErrOutdated)
}

// CronReplicas returns the value of crane_autoscaling_cron: the highest floor of the open windows, at least minReplicas.
func CronReplicas(windows []CronWindow, minReplicas int32, now time.Time) int32 {
	return max(minReplicas, FloorAt(windows, now).Replicas)
}
