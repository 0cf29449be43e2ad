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

// MinSkill is the least skill (1 is perfect, 0 no better than a constant) of a forecast that is acted on: below, what it
// would add is a high constant, which minReplicas says more plainly.
const MinSkill = 0.1

// Why a forecast takes no part in a decision.
var (
	// ErrOutdated means that a forecast ends before now, or was made of samples that were old already.
	ErrOutdated = errors.New("the forecast is out of date")
	// ErrNoSkill means that a forecast was no better than a constant on the metric's own past.
	ErrNoSkill = errors.New("the forecast has no skill")
)

// Point is one value of a forecast; it holds until the next one.
type Point struct {
	At    time.Time
	Value float64
}

// IndexesInWindow returns which of n points, whose times are in order, count from now to the end of a window: points[from:to]. The one that holds
// now counts, however long ago it begins; one that begins as the window ends does not. A point holds until the next one; the last
// one counts until it begins.
func IndexesInWindow(n int, at func(i int) time.Time, now time.Time, window time.Duration) (from, to int) {
	from = sort.Search(n, func(i int) bool { return !at(i).Before(now) })
	if from > 0 && from < n && at(from).After(now) {
		from--
	}
	end := now.Add(window)
	to = from + sort.Search(n-from, func(i int) bool { return !at(from + i).Before(end) })
	return from, to
}

// PeakInWindow returns the highest value of a forecast from now to the end of a window, in the unit of the forecast: what
// crane_autoscaling_prediction is. The points are in the order of time; the one that holds now counts, however long ago it
// begins. The error wraps ErrOutdated where nothing is left of the forecast, and names a value that is no amount.
func PeakInWindow(points []Point, now time.Time, window time.Duration) (float64, error) {
	peak, found := 0.0, false
	from, to := IndexesInWindow(len(points), func(i int) time.Time { return points[i].At }, now, window)
	for _, p := range points[from:to] {
		if !(p.Value >= 0) || math.IsInf(p.Value, 0) {
			return 0, fmt.Errorf("the forecast for %s is %v: %w", p.At.UTC().Format(time.RFC3339), p.Value, ErrNoMetric)
		}
		peak, found = math.Max(peak, p.Value), true
	}
	switch {
	case found:
		return peak, nil
	case len(points) == 0:
		return 0, fmt.Errorf("the forecast has no values: %w", ErrNoMetric)
	}
	return 0, fmt.Errorf("it ends at %s: %w", points[len(points)-1].At.UTC().Format(time.RFC3339), ErrOutdated)
}

// CronReplicas is what crane_autoscaling_cron is: the highest floor of the windows that are open, and minReplicas otherwise.
func CronReplicas(windows []CronWindow, minReplicas int32, now time.Time) int32 {
	return max(minReplicas, FloorAt(windows, now).Replicas)
}
