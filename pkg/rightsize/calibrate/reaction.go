// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import "time"

const (
	// reactionWindow is the time in which usage must exceed the request twice to be raised, once by bigExcess or once if there
	// is one sample in that time.
	reactionWindow = 5 * time.Minute
	bigExcess      = 1.25
	maxRecent      = int(reactionWindow / time.Minute)
)

// Recent holds the last usage of a pod: up to five minutes, at most one sample a minute. NewRecent returns an empty one.
type Recent struct {
	values [maxRecent]float64
	count  int // valid values
	next   int
	size   int // of values in reactionWindow at the step of the series; 1 to maxRecent
}

// NewRecent returns an empty window for samples at a step.
func NewRecent(step time.Duration) Recent {
	return Recent{size: min(max(int(reactionWindow/max(step, 1)), 1), maxRecent)}
}

// Add adds a sample; a gap empties the window, so that usage before it does not count as present.
func (r *Recent) Add(use float64) {
	if !usable(use) {
		r.count = 0
		return
	}

	r.values[r.next] = use
	r.next = (r.next + 1) % r.size
	r.count = min(r.count+1, r.size)
}

// at returns the i-th latest sample.
func (r *Recent) at(i int) float64 { return r.values[(r.next-1-i+2*r.size)%r.size] }

// Exceeds reports whether the last minutes require a raise of a request.
func (r *Recent) Exceeds(request float64) bool {
	if r.count == 0 || !(r.at(0) > request) {
		return false
	}

	if r.size == 1 || r.at(0) > bigExcess*request {
		return true
	}

	above := 0
	for i := range r.count {
		if r.at(i) > request {
			above++
		}
	}

	return above > 1
}

// Max returns the highest sample; 0 without one.
func (r *Recent) Max() float64 {
	highest := 0.0
	for i := range r.count {
		highest = max(highest, r.at(i))
	}

	return highest
}

// raise is the state of the reaction for one pod and one multiplier.
type raise struct {
	level float64
	until int64 // the first time at which level does not hold; nanoseconds since the epoch
}

// request returns the request at a time, given the planned one.
func (r *raise) request(now int64, planned float64) float64 {
	if now < r.until {
		return max(planned, r.level)
	}

	return planned
}

// observe raises the request if usage requires it.
func (r *raise) observe(now int64, planned float64, use *Recent, reaction *Reaction) {
	request := r.request(now, planned)
	if !use.Exceeds(request) {
		return
	}

	r.level = reaction.Headroom * use.Max()
	if now < r.until {
		r.level = max(r.level, request)
	}

	r.until = now + int64(reaction.Hold)
}
