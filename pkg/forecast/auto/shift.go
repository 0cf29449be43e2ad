// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"slices"
)

// regime returns how many of the newest units belong to the level that the series is at now. Where the series once
// moved up to a level that has nothing in common with what was before, the past says nothing about the future any more,
// and keeping it would poison every quantile for two weeks. Where it moved more than once, moving is what it does, and
// all of the past counts. So it does where it moved down: the median follows anyway, and what was once used may be again.
func (m *Model) regime(t tuning) int {
	perBlock := m.layout.perBlock()
	perDay := m.layout.perDay() / perBlock
	if perDay < leastBlocks {
		return m.recent.count
	}
	levels := make([]float64, m.recent.count/perBlock) // newest first
	for i := range levels {
		levels[i] = m.blockLevel(i*perBlock+1, perBlock)
	}
	shift := lastShift(levels, perDay, t)
	if shift < 0 || lastShift(levels[shift:], perDay, t) >= 0 {
		return m.recent.count
	}
	return shift * perBlock
}

// leastBlocks is how many blocks a day needs for a band of what is normal.
const leastBlocks = 6

// lastShift returns how many of the newest blocks lie after the last shift of the level, -1 where there is none.
//
// The newest day sets the band of what is normal. Walking back, the level ends where a whole day lies below the band,
// unless what is older still is inside it again (that was a holiday, not a new level). A daily cycle
// covers its own band, so neither weekends nor plateaus end a level.
func lastShift(levels []float64, perDay int, t tuning) int {
	blocks := len(levels)
	if blocks < 2*perDay {
		return -1
	}
	low, high, ok := band(levels[:perDay], t.shiftFactor)
	if !ok {
		return -1
	}
	below := make([]int, blocks+1)  // prefix sums of blocks below the band
	inside := make([]int, blocks+1) // and of those within it
	for i, v := range levels {
		below[i+1], inside[i+1] = below[i], inside[i]
		switch {
		case v < low:
			below[i+1]++
		case v <= high:
			inside[i+1]++
		}
	}
	need := int(math.Ceil(t.shiftShare * float64(perDay)))
	for i := perDay / 2; i+perDay <= blocks; i++ {
		if below[i+perDay]-below[i] < need {
			continue
		}
		// The level began at i, or a little before it: give the hours that do not fit to what was before.
		for i > 0 && !(levels[i-1] >= low && levels[i-1] <= high) {
			i--
		}
		if older := inside[blocks] - inside[i]; float64(older) > (1-t.shiftShare)*float64(blocks-i)+1 {
			return -1
		}
		return i
	}
	return -1
}

// band returns the range of the values, widened by a factor on both sides; false where most of them are gaps.
func band(values []float64, factor float64) (low, high float64, ok bool) {
	usable := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) {
			usable = append(usable, v)
		}
	}
	if len(usable) < len(values)/2 {
		return 0, 0, false
	}
	slices.Sort(usable)
	edge := len(usable) / 20
	return usable[edge] / factor, usable[len(usable)-1-edge] * factor, true
}

// blockLevel returns the mean of the middles of some units, the newest of them ago units before head; NaN where there
// are none.
func (m *Model) blockLevel(ago, n int) float64 {
	sum, found := 0.0, 0
	for i := range n {
		if u := m.at(ago + i); !u.empty() {
			sum += float64(u.middle(m.layout.sub))
			found++
		}
	}
	if found == 0 {
		return math.NaN()
	}
	return sum / float64(found)
}
