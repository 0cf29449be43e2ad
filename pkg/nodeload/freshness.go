// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import "time"

const (
	// Grace is how much longer than its period a value counts, as in gocrane.
	Grace = 5 * time.Minute
	// MaxSkew is how far in the future a time may lie before it is not believed: clocks of nodes that are kept by NTP
	// differ by less, writers in another time zone by more.
	MaxSkew = time.Minute
	// HotActive is how long a hot value counts, as in gocrane.
	HotActive = 5 * time.Minute
)

// State says whether a value can be acted on.
type State int8

// The states of a value. Filter and Score have the same rule for all of them: only what is Fresh counts; the others are
// unknown, never zero.
const (
	// Absent: there is no value, or one that cannot be read.
	Absent State = iota
	// Stale: the value is too old, or from the future.
	Stale
	// Fresh: the value can be acted on.
	Fresh
)

func (s State) String() string {
	switch s {
	case Fresh:
		return "fresh"
	case Stale:
		return "stale"
	default:
		return "absent"
	}
}

// StateAt tells whether the sample can be acted on, if values count for active.
func (s Sample) StateAt(now time.Time, active time.Duration) State {
	return stateAt(s.Time, now, active)
}

// StateAt tells whether the hot value still counts.
func (h Hot) StateAt(now time.Time) State { return stateAt(h.Time, now, HotActive) }

func stateAt(at, now time.Time, active time.Duration) State {
	if at.IsZero() {
		return Absent
	}
	if age := now.Sub(at); age > active || age < -MaxSkew {
		return Stale
	}
	return Fresh
}
