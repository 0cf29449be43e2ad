// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backoff computes the delay before a failed operation is tried again.
package backoff

import "time"

// Exponential is a delay that starts at First and doubles with each failure in a row, up to Last. It has no state: the caller keeps the
// number of failures or the previous delay, and adds jitter where many clients fail together.
type Exponential struct {
	// First and Last are above zero.
	First, Last time.Duration
}

// maxDoublings keeps the shift within 64 bits: 2^31 times a nanosecond is two seconds, and First is seldom below a millisecond.
const maxDoublings = 31

// After returns the delay after a number of failures in a row; zero counts as one.
func (e Exponential) After(failures int) time.Duration {
	delay := min(e.First, e.Last)
	for range min(max(failures, 1)-1, maxDoublings) {
		delay = e.Next(delay)
	}

	return delay
}

// Next returns the delay that follows another one; zero is that of an operation which has not failed before.
func (e Exponential) Next(previous time.Duration) time.Duration {
	if previous <= 0 {
		return min(e.First, e.Last)
	}

	// Compared before it is doubled, so that no duration overflows.
	if previous >= e.Last/2 {
		return e.Last
	}

	return 2 * previous
}
