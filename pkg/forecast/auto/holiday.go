// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"slices"
)

// exceptional marks the newest rows that differ from their weekday and resemble days of another kind, as an unknown
// holiday does. The loss of a candidate on such a day is little evidence about other days.
//
// A row is exceptional if it is far from the row of its weekday, compared with the distances of the other rows, and
// near to an older one. A level shift is not exceptional: only the unbroken run of days since resembles it.
func (b *banks) exceptional(rows int) []bool {
	out := make([]bool, rows)
	if rows < 3 || b.grid.likes == 0 {
		return out
	}
	var away, usual, all [maxRows]float64
	n := 0
	for k := range rows {
		away[k] = -1
		if b.unlike(k, 0, all[:len(b.grid.rows)]) && b.grid.rows[k].full() {
			away[k] = all[k]
			usual[n] = away[k]
			n++
		}
	}
	if n < 3 {
		return out
	}
	slices.Sort(usual[:n])
	for k := range out {
		out[k] = away[k] > exceptionalDistance*usual[(n-1)/2] && b.kindSeenBefore(k, away[k]/2)
	}
	return out
}

// exceptionalDistance is how many times as far from its weekday as usual an exceptional row is.
const exceptionalDistance = 3

// kindSeenBefore reports whether an older row is within a distance, and one between them is not.
func (b *banks) kindSeenBefore(k int, within float64) bool {
	broken := false
	for j := k + 1; j < len(b.grid.rows); j++ {
		switch d := b.distances[k][j]; {
		case d < 0:
		case d > within:
			broken = true
		case broken:
			return true
		}
	}
	return false
}

// fewestWeeks is how many rows of a weekday make a profile that a holiday does not bend.
const fewestWeeks = 3

// unlike fills away with how far each row is from what the weekday of a target is like, -1 where that cannot be said;
// false where the weekday is not known. The weekday is known by the profile of three weeks or more, or by one row that
// stands for it.
func (b *banks) unlike(target, ahead int, away []float64) bool {
	var store [mostWeeks]int
	rows := b.weeks.same(target, ahead, store[:])
	if len(rows) >= fewestWeeks {
		profile := make([]float32, b.grid.slots)
		b.weeks.middle(kernel{place: atWeek}, target, ahead, true, profile)
		for j := range away {
			away[j] = b.grid.distanceTo(profile, j)
		}
		return true
	}
	reference := b.typical(rows, target)
	if reference < 0 {
		return false
	}
	copy(away, b.distances[reference])
	away[reference] = -1 // it is like itself: others are compared with the nearest of them
	return true
}

// typical returns, of the rows of a weekday, the one that stands for it: the newest, unless that was unlike other days
// and the one before it was not. A holiday must not be what next week's weekday is taken for. -1 where there are none.
func (b *banks) typical(rows []int, target int) int {
	best, least := -1, math.Inf(1)
	for _, k := range rows {
		if k >= len(b.distances) {
			break // too old to be compared with
		}
		odd := b.oddity(k, target)
		if best < 0 || odd < b.tuning.oddity*least {
			best, least = k, odd
		}
	}
	return best
}

// oddity is the median distance of a row to those that are older than a target; infinite where there are none.
func (b *banks) oddity(k, target int) float64 {
	var found [maxRows]float64
	n := 0
	for j := target + 1; j < len(b.distances); j++ {
		if d := b.distances[k][j]; j != k && d >= 0 {
			found[n] = d
			n++
		}
	}
	if n == 0 {
		return math.Inf(1)
	}
	slices.Sort(found[:n])
	return found[n/2]
}
