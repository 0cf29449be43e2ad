// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import "time"

// window computes a sliding minimum: it keeps only values that are smaller than all later ones.
type window[T Amount] struct {
	since  time.Time // time of the first value
	points []point[T]
}

type point[T Amount] struct {
	at    time.Time
	value T
}

// maxPoints limits a window; beyond it two neighbors are merged to the smaller one.
const maxPoints = 512

// add adds a value and drops those older than span. covered reports whether the window spans all of it.
func (w *window[T]) add(at time.Time, value T, span time.Duration) (covered bool) {
	if w.since.IsZero() {
		w.since = at
	}
	for n := len(w.points); n > 0 && w.points[n-1].value >= value; n-- {
		w.points = w.points[:n-1]
	}
	old := 0
	for old < len(w.points) && at.Sub(w.points[old].at) > span {
		old++
	}
	w.points = append(w.points[:0], w.points[old:]...)
	if len(w.points) == maxPoints {
		// The older value is smaller and takes the place of the younger.
		w.points[maxPoints-1].value = w.points[maxPoints-2].value
		w.points = append(w.points[:maxPoints-2], w.points[maxPoints-1])
	}
	w.points = append(w.points, point[T]{at, value})
	return at.Sub(w.since) >= span
}

// minimum returns the smallest value; 0 for an empty window.
func (w *window[T]) minimum() T {
	if len(w.points) == 0 {
		return 0
	}
	return w.points[0].value
}
