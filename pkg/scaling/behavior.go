// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"math"
	"slices"
	"time"
)

// PolicySelect selects one of several rate policies.
type PolicySelect int

const (
	// SelectMax selects the policy that allows the largest change.
	SelectMax PolicySelect = iota
	// SelectMin selects the policy that allows the smallest change.
	SelectMin
	// SelectDisabled allows no change in this direction.
	SelectDisabled
)

// RatePolicy bounds the change within a period.
type RatePolicy struct {
	// Pods is the maximum number of pods that are added or removed; unused where Percent is set.
	Pods int32
	// Percent is the maximum change as a percentage of the replicas at the start of the period; 100 doubles them.
	Percent int32
	// Period is the time span of the bound.
	Period time.Duration
}

// DirectionRules are the scaling rules of an HPA for one direction.
type DirectionRules struct {
	// StabilizationWindow is how far back the most cautious recommendation counts.
	StabilizationWindow time.Duration
	// Policies are the rate limits; none for no limit.
	Policies []RatePolicy
	Select   PolicySelect
}

// Behavior is the scaling behavior of an HPA.
type Behavior struct {
	Up, Down DirectionRules
	// Unset marks the behavior of an HPA without one, see DefaultBehavior.
	Unset bool
}

// DefaultBehavior returns the behavior of an HPA without one: it scales up at once, to at most twice the replicas or 4, whichever is more, and
// down to the highest recommendation of the stabilization window (300 s by default).
func DefaultBehavior(stabilization time.Duration) Behavior {
	return Behavior{Unset: true, Down: DirectionRules{StabilizationWindow: stabilization}}
}

// History holds the recommendations and changes of an HPA as far back as its behavior needs. The zero value is ready to use. It is
// not safe for concurrent use.
type History struct {
	started         bool
	scaledToZero    bool // by the last change
	recommendations []replicaRecord
	added, removed  []replicaRecord // changes, without sign
}

// replicaRecord is a number of replicas with the time of its decision.
type replicaRecord struct {
	at       time.Time
	replicas int32
}

// start records the present replicas as a recommendation at the first sync: after a start of the controller an HPA keeps its replicas for a
// stabilization window.
func (h *History) start(now time.Time, current int32) {
	if h.started {
		return
	}

	h.started = true
	h.recommendations = []replicaRecord{{now, current}}
}

// Limit returns the replicas to set for desired ones: stabilized, then bounded by the rate policies and by [low, high]. It records
// the recommendation; the caller records the resulting change with RecordScaling.
func (h *History) Limit(b Behavior, now time.Time, current, desired, low, high int32) int32 {
	h.start(now, current)
	if b.Unset {
		stable := h.stabilizeDown(b.Down.StabilizationWindow, now, desired)
		return max(min(stable, high, defaultUpperLimit(current)), low)
	}

	stable := h.stabilize(b, now, current, desired)
	switch {
	case stable > current:
		return min(stable, high, max(h.upperLimit(b.Up, now, current), current))
	case stable < current:
		return max(stable, low, min(h.lowerLimit(b.Down, now, current), current))
	}

	return stable
}

// defaultUpperLimit returns the most replicas to which an HPA without a behavior scales at once.
func defaultUpperLimit(current int32) int32 {
	const factor, least = 2, 4
	return int32(min(math.MaxInt32, max(factor*int64(current), least)))
}

// RecordScaling records a change of replicas by an HPA. Of one without a behavior only a change to 0 matters.
func (h *History) RecordScaling(b Behavior, now time.Time, from, to int32) {
	if from != to {
		h.scaledToZero = to == 0
	}

	switch {
	case b.Unset:
	case to > from:
		h.added = record(h.added, replicaRecord{now, to - from}, now.Add(-b.Up.longestPeriod()))
	case to < from:
		h.removed = record(h.removed, replicaRecord{now, from - to}, now.Add(-b.Down.longestPeriod()))
	}
}

// record appends a record, or replaces the last one from before a time.
func record(records []replicaRecord, next replicaRecord, outdated time.Time) []replicaRecord {
	for i, r := range slices.Backward(records) {
		if r.at.Before(outdated) {
			records[i] = next
			return records
		}
	}

	return append(records, next)
}

func (r DirectionRules) longestPeriod() time.Duration {
	longest := time.Duration(0)
	for _, p := range r.Policies {
		longest = max(longest, p.Period)
	}

	return longest
}

// stabilizeDown returns the highest recommendation of a window, and records the new one.
func (h *History) stabilizeDown(window time.Duration, now time.Time, desired int32) int32 {
	start := now.Add(-window)
	highest := desired
	for _, r := range h.recommendations {
		if !r.at.Before(start) {
			highest = max(highest, r.replicas)
		}
	}

	h.recommendations = record(h.recommendations, replicaRecord{now, desired}, start)
	return highest
}

// stabilize returns the number nearest to current among the recommendations in the window of each direction, and records the new one.
func (h *History) stabilize(b Behavior, now time.Time, current, desired int32) int32 {
	startUp := now.Add(-b.Up.StabilizationWindow)
	startDown := now.Add(-b.Down.StabilizationWindow)
	lowest := desired
	highest := desired
	for _, r := range h.recommendations {
		if r.at.After(startUp) {
			lowest = min(lowest, r.replicas)
		}
		if r.at.After(startDown) {
			highest = max(highest, r.replicas)
		}
	}

	outdated := startUp
	if startDown.Before(startUp) {
		outdated = startDown
	}

	h.recommendations = record(h.recommendations, replicaRecord{now, desired}, outdated)
	return min(max(current, lowest), highest)
}

// upperLimit returns the highest number of replicas that the policies allow.
func (h *History) upperLimit(r DirectionRules, now time.Time, current int32) int32 {
	return selectLimit(r, math.MaxInt32, current, r.Select == SelectMin, func(p RatePolicy) int32 {
		start := h.replicasAtPeriodStart(p.Period, now, current)
		if p.Percent > 0 {
			return wholeReplicas(float64(start) * (1 + float64(p.Percent)/100))
		}

		return start + p.Pods
	})
}

// lowerLimit returns the lowest number of replicas that the policies allow.
func (h *History) lowerLimit(r DirectionRules, now time.Time, current int32) int32 {
	return selectLimit(r, 0, current, r.Select == SelectMax, func(p RatePolicy) int32 {
		start := h.replicasAtPeriodStart(p.Period, now, current)
		if p.Percent > 0 {
			return int32(float64(start) * (1 - float64(p.Percent)/100))
		}

		return start - p.Pods
	})
}

// selectLimit returns the lowest or the highest limit of the policies, and unlimited without any.
func selectLimit(r DirectionRules, unlimited, current int32, lowest bool, limit func(RatePolicy) int32) int32 {
	if r.Select == SelectDisabled {
		return current
	}

	if len(r.Policies) == 0 {
		return unlimited
	}

	out := limit(r.Policies[0])
	for _, p := range r.Policies[1:] {
		if l := limit(p); lowest == (l < out) {
			out = l
		}
	}

	return out
}

// replicasAtPeriodStart returns the replicas at the start of a period that ends now.
func (h *History) replicasAtPeriodStart(period time.Duration, now time.Time, current int32) int32 {
	start := now.Add(-period)
	for _, c := range h.added {
		if c.at.After(start) {
			current -= c.replicas
		}
	}

	for _, c := range h.removed {
		if c.at.After(start) {
			current += c.replicas
		}
	}

	return current
}
