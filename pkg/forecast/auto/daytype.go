// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"time"
)

// setMidnight sets midnight from the time of the origin, in the zone, UTC for nil.
func (h *dayRows) setMidnight(origin time.Time, zone *time.Location) {
	if slots := slotsToMidnight(origin, h.slots, zone); h.dayTypeChanges(slots) {
		h.midnight = slots
	}
}

// slotsToMidnight returns the number of slots from the origin to the next midnight in the zone, UTC for nil.
func slotsToMidnight(origin time.Time, slots int, zone *time.Location) int {
	if zone == nil {
		zone = time.UTC
	}

	hour, minute, second := origin.In(zone).Clock()
	return slots - (hour*3600+minute*60+second)*slots/int(day/time.Second)
}

// daysOfWeek is the number of rows from one weekday to the same one.
const daysOfWeek = 7

// dayTypeChanges reports whether the load changes at the next midnight as it does at no other one: a week ago and two weeks ago it rose
// more, or fell more, than at each of the six midnights after. It needs 14 days of history, and hours before the midnight.
func (h *dayRows) dayTypeChanges(midnight int) bool {
	if midnight >= h.slots || h.rows < 2*daysOfWeek {
		return false
	}

	lastWeek := h.unusualChange(daysOfWeek-1, midnight)
	return lastWeek != 0 && h.unusualChange(2*daysOfWeek-1, midnight) == lastWeek
}

// unusualChange returns 1 if the load rose more, or fell less, at the midnight of a row than at those of the six newer ones, -1 if it fell
// more or rose less, and 0 otherwise.
func (h *dayRows) unusualChange(row, midnight int) int {
	lowest := math.Inf(1)
	highest := math.Inf(-1)
	for r := row - daysOfWeek + 1; r < row; r++ {
		if c := h.changeAt(r, midnight); !math.IsNaN(c) {
			lowest = min(lowest, c)
			highest = max(highest, c)
		}
	}

	switch c := h.changeAt(row, midnight); {
	case lowest > highest: // no samples
	case c > highest:
		return 1
	case c < lowest:
		return -1
	}

	return 0
}

// changeAt returns the log of the ratio of the mean of six hours after the midnight of a row to that of three hours before it, within the
// row; NaN without samples.
func (h *dayRows) changeAt(row, midnight int) float64 {
	slots := h.row(row)
	before, _ := meanMedian(slots[max(0, midnight-h.slots/8):midnight])
	after, _ := meanMedian(slots[midnight:min(h.slots, midnight+h.slots/4)])
	floor := 0.01 * h.meanLevel()

	return math.Log((after + floor) / (before + floor))
}
