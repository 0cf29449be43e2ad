// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"slices"
	"time"
)

// maxRows is the number of days of a history.
const maxRows = historyDays

// dayRows is the state of a model cut into rows of a day that end at the origin: row 0 is the newest day. Origin o is the
// start of row o-1, that is the end of row o; origin 0 is that of the forecast. What is known at origin o are the rows
// from o on, so a replay of origin o forecasts row o-1.
type dayRows struct {
	slots    int // of a row
	rows     int
	shares   shares
	atoms    []atoms // by row, then by slot in order of time
	coverage []float64
	// level is the mean of the medians of each row, late that of its last three hours; NaN without samples.
	level, late []float64
	// distances are those of each pair of rows; see distance.
	distances []float64
	sampled   bool
	// midnight is the number of slots from the origin to the next midnight if the type of day changes there, 1 to slots; else 0.
	midnight int
	max      float64
}

// lateHours is the length of the period before an origin whose mean corrects the level of a profile.
const lateHours = 3

func newDayRows(m *Model, zone *time.Location) *dayRows {
	h := &dayRows{slots: m.layout.perDay(), shares: m.layout.shares}
	h.rows = (m.recent.count + h.slots - 1) / h.slots
	h.atoms = make([]atoms, h.rows*h.slots)
	h.coverage = make([]float64, h.rows)
	h.level = make([]float64, h.rows)
	h.late = make([]float64, h.rows)

	clock := newWallClock(zone, (m.head-int64(m.recent.count))*m.layout.seconds(), m.head*m.layout.seconds())
	past := clock.pastSlots(m, h.rows*h.slots)

	// Rows end at the origin, so the newest row is complete and the oldest may be short.
	lateSlots := max(1, h.slots*lateHours/24)
	for r := range h.rows {
		row := h.row(r)
		for x := range row {
			place := (r+1)*h.slots - x - 1
			index := m.head - int64(place) - 1
			if past != nil {
				index = past[place]
			}

			row[x] = m.recent.at(index).unpack()
			if !row[x].empty() {
				h.max = max(h.max, float64(row[x][top]))
			}
		}

		var n int
		h.level[r], n = meanMedian(row)
		h.late[r], _ = meanMedian(row[h.slots-lateSlots:])
		h.coverage[r] = float64(n) / float64(h.slots)
		h.sampled = h.sampled || n > 0
	}

	h.dropOutage()
	h.distances = make([]float64, h.rows*h.rows)
	for a := range h.rows {
		for b := range a {
			d := h.distance(a, b)
			h.distances[a*h.rows+b] = d
			h.distances[b*h.rows+a] = d
		}
	}

	return h
}

// Bounds of an outage: a run of days, the only one of the history, whose level is below a share of the usual one.
const (
	outageDays  = 3
	outageShare = 0.02
)

// dropOutage removes the samples of an outage, which are no evidence of the load after it. Longer runs and recurrent ones
// are part of the load.
func (h *dayRows) dropOutage() {
	levels := make([]float64, 0, maxRows)
	for _, v := range h.level {
		if !math.IsNaN(v) {
			levels = append(levels, v)
		}
	}

	if len(levels) == 0 {
		return
	}

	slices.Sort(levels)
	limit := outageShare * levels[len(levels)/2]

	first := -1
	last := -1
	count := 0
	for r, v := range h.level {
		if v < limit {
			if first < 0 {
				first = r
			}

			last = r
			count++
		}
	}

	// Only one run of few days is an outage: load that is off more often, or for most of the history, is as it is.
	if count == 0 || count > outageDays || last-first+1 != count || 2*count >= len(levels) {
		return
	}

	for r := first; r <= last; r++ {
		row := h.row(r)
		for x := range row {
			row[x] = emptySlot()
		}

		h.coverage[r] = 0
		h.level[r] = math.NaN()
		h.late[r] = math.NaN()
	}
}

func (h *dayRows) row(r int) []atoms { return h.atoms[r*h.slots : (r+1)*h.slots] }

// kinds returns how many of the atoms of a slot differ: one where a slot has a single sample.
func (h *dayRows) kinds() int {
	if h.shares[median] == 1 {
		return 1
	}

	return atomCount
}

// full reports whether a row has enough samples to be replayed.
func (h *dayRows) full(r int) bool { return h.coverage[r] >= 0.5 }

// fullRows returns the number of full rows.
func (h *dayRows) fullRows() int {
	n := 0
	for r := range h.rows {
		if h.full(r) {
			n++
		}
	}

	return n
}

// meanMedian returns the mean of the medians of slots, and how many have samples; NaN if none has.
func meanMedian(slots []atoms) (float64, int) {
	sum := 0.0
	n := 0
	for i := range slots {
		if !slots[i].empty() {
			sum += float64(slots[i][median])
			n++
		}
	}

	return sum / float64(n), n
}

// meanLevel returns the mean of the levels of the rows that have samples.
func (h *dayRows) meanLevel() float64 {
	sum := 0.0
	n := 0
	for _, v := range h.level {
		if !math.IsNaN(v) {
			sum += v
			n++
		}
	}

	return sum / float64(n)
}

// distance returns the mean absolute difference of the medians of two rows; NaN where they have no slot in common.
func (h *dayRows) distance(a, b int) float64 {
	sum := float32(0)
	n := 0
	second := h.row(b)
	for x, first := range h.row(a) {
		d := first[median] - second[x][median]
		if isNaN(d) {
			continue
		}

		sum += max(d, -d)
		n++
	}

	if n < h.slots/4 {
		return math.NaN()
	}

	return float64(sum) / float64(n)
}
