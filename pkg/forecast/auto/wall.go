// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import "time"

// wallClock converts times to those of the clock of a zone, by which people work: after a change of the clocks, a load of working hours is an hour
// earlier or later in UTC. The zero value is UTC.
type wallClock struct {
	zone *time.Location // nil where the clock does not change within the time in question
}

// newWallClock returns the clock of a zone, nil for UTC, for times from one to another.
func newWallClock(zone *time.Location, from, to int64) wallClock {
	if zone == nil {
		return wallClock{}
	}

	_, end := time.Unix(from, 0).In(zone).ZoneBounds()
	if end.IsZero() || end.Unix() > to {
		return wallClock{}
	}

	return wallClock{zone: zone}
}

// seconds returns a time of the clock, for a time in Unix seconds.
func (c wallClock) seconds(unix int64) int64 {
	if c.zone == nil {
		return unix
	}

	_, offset := time.Unix(unix, 0).In(c.zone).Zone()
	return unix + int64(offset)
}

// daysBefore returns the time at which the clock showed the same time of day, some days before.
func (c wallClock) daysBefore(unix, days int64) int64 {
	const daySeconds = int64(day / time.Second)

	before := unix - days*daySeconds
	if c.zone == nil {
		return before
	}

	return before + c.seconds(unix) - unix - (c.seconds(before) - before)
}

// pastSlots returns the index of the slot that a model has for each place before its head, newest first, by the clock; a place without a slot has
// the head. Places are those of rows of days. It returns nil where the clock does not change, so that the places are those of the slots.
func (c wallClock) pastSlots(m *Model, places int) []int64 {
	if c.zone == nil {
		return nil
	}

	out := make([]int64, places)
	for i := range out {
		out[i] = m.head
	}

	seconds := m.layout.seconds()
	head := floorDiv(c.seconds(m.head*seconds), seconds)
	for ago := int64(m.recent.count); ago >= 1; ago-- {
		index := m.head - ago
		place := head - floorDiv(c.seconds(index*seconds), seconds) - 1
		if place >= 0 && place < int64(places) {
			out[place] = index // Of an hour that the clock repeats, the later one counts.
		}
	}

	return out
}
