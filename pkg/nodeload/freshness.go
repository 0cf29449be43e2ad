// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import "time"

const (
	// Grace is how much longer than its period a value is valid, as in gocrane.
	Grace = 5 * time.Minute
	// UndatedAge is how much older than its reading a value counts whose sample time is unknown: the samples of a dead
	// exporter remain in an average of five minutes, half of that on average.
	UndatedAge = 150 * time.Second
	// MaxSkew is how far in the future a time may be: clocks synchronised by NTP differ by less, writers in another
	// time zone by more.
	MaxSkew = time.Minute
	// HotActive is how long a hot value is valid, as in gocrane.
	HotActive = 5 * time.Minute
)

// State is the freshness of a value.
type State int8

// States of a value. Filter and Score use only Fresh values; the others are unknown, never zero.
const (
	// Absent means that there is no value, or an invalid one.
	Absent State = iota
	// Stale means that the value is too old, or from the future.
	Stale
	// Fresh means that the value can be used.
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

// StateAt returns the state of the sample if values are valid for active.
func (s Sample) StateAt(now time.Time, active time.Duration) State {
	return stateAt(s.Time, now, active)
}

// StateAt returns the state of the hot value.
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
