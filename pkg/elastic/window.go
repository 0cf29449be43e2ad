// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import "time"

// window keeps the least of the values of a span of time: of those that it holds, each is less than all that came before it are not.
type window[T Amount] struct {
	since  time.Time // of the first value since it was made
	points []point[T]
}

type point[T Amount] struct {
	at    time.Time
	value T
}

// maxPoints bounds a window; where more are needed the least of two neighbours stands for both.
const maxPoints = 512

// add adds a value and drops those that are older than span. covered tells that the window has seen all of it.
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
		// The older of two is the lesser; it stays as long as the younger would have.
		w.points[maxPoints-1].value = w.points[maxPoints-2].value
		w.points = append(w.points[:maxPoints-2], w.points[maxPoints-1])
	}
	w.points = append(w.points, point[T]{at, value})
	return at.Sub(w.since) >= span
}

// minimum is the least value; a window that has none has 0.
func (w *window[T]) minimum() T {
	if len(w.points) == 0 {
		return 0
	}
	return w.points[0].value
}
