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
}

// DefaultBehavior returns the behavior of an autoscaling/v2 HPA without one: it scales up at once, by 100 % or 4 pods in 15 s,
// whichever is more, and down to the highest recommendation of the stabilization window (300 s by default).
func DefaultBehavior(stabilization time.Duration) Behavior {
	const period = 15 * time.Second
	return Behavior{
		Up:   DirectionRules{Policies: []RatePolicy{{Percent: 100, Period: period}, {Pods: 4, Period: period}}},
		Down: DirectionRules{StabilizationWindow: stabilization, Policies: []RatePolicy{{Percent: 100, Period: period}}},
	}
}

// History holds the recommendations and changes of an HPA as far back as its behavior needs. The zero value is ready to use. It is
// not safe for concurrent use.
type History struct {
	recommendations []replicaRecord
	changes         []replicaRecord // signed
}

// replicaRecord is a number of replicas with the time of its decision.
type replicaRecord struct {
	at       time.Time
	replicas int32
}

// Limit returns the replicas to set for desired ones: stabilized, then bounded by the rate policies and by [low, high]. It records
// the recommendation; the caller records the resulting change with RecordScaling.
func (h *History) Limit(b Behavior, now time.Time, current, desired, low, high int32) int32 {
	h.dropExpired(b, now)
	stable := h.stabilize(b, now, current, desired)
	h.recommendations = append(h.recommendations, replicaRecord{now, desired})
	if stable > current {
		stable = min(stable, max(h.upperLimit(b.Up, now, current), current))
	}
	if stable < current {
		stable = max(stable, min(h.lowerLimit(b.Down, now, current), current))
	}

	return min(max(stable, low), high)
}

// RecordScaling records a change of replicas.
func (h *History) RecordScaling(now time.Time, from, to int32) {
	if from != to {
		h.changes = append(h.changes, replicaRecord{now, to - from})
	}
}

// stabilize returns the number nearest to current among the recommendations in the window of each direction.
func (h *History) stabilize(b Behavior, now time.Time, current, desired int32) int32 {
	lowest := desired
	highest := desired
	for _, r := range h.recommendations {
		if r.at.After(now.Add(-b.Up.StabilizationWindow)) {
			lowest = min(lowest, r.replicas)
		}
		if r.at.After(now.Add(-b.Down.StabilizationWindow)) {
			highest = max(highest, r.replicas)
		}
	}

	return min(max(current, lowest), highest)
}

// upperLimit returns the highest number of replicas that the policies allow.
func (h *History) upperLimit(r DirectionRules, now time.Time, current int32) int32 {
	return selectLimit(r, math.MaxInt32, current, r.Select == SelectMin, func(p RatePolicy) int32 {
		start := h.replicasAtPeriodStart(p.Period, now, current)
		if p.Percent > 0 {
			return ceilReplicas(float64(start) * (1 + float64(p.Percent)/100))
		}

		return start + p.Pods
	})
}

// lowerLimit returns the lowest number of replicas that the policies allow.
func (h *History) lowerLimit(r DirectionRules, now time.Time, current int32) int32 {
	return selectLimit(r, 0, current, r.Select == SelectMax, func(p RatePolicy) int32 {
		start := h.replicasAtPeriodStart(p.Period, now, current)
		if p.Percent > 0 {
			return int32(math.Floor(float64(start) * (1 - float64(p.Percent)/100)))
		}

		return start - p.Pods
	})
}

// selectLimit returns the lowest or the highest limit of the policies, and unlimited without any.
func selectLimit(r DirectionRules, free, current int32, lowest bool, limit func(RatePolicy) int32) int32 {
	if r.Select == SelectDisabled {
		return current
	}

	if len(r.Policies) == 0 {
		return free
	}

	out := limit(r.Policies[0])
	for _, p := range r.Policies[1:] {
		if l := limit(p); lowest == (l < out) {
			out = l
		}
	}

	return max(out, 0)
}

// replicasAtPeriodStart returns the replicas at the start of a period that ends now.
func (h *History) replicasAtPeriodStart(period time.Duration, now time.Time, current int32) int32 {
	for _, c := range h.changes {
		if c.at.After(now.Add(-period)) {
			current -= c.replicas
		}
	}

	return max(current, 0)
}

// dropExpired drops records that are older than every window.
func (h *History) dropExpired(b Behavior, now time.Time) {
	memory := max(b.Up.StabilizationWindow, b.Down.StabilizationWindow)
	for _, p := range b.Up.Policies {
		memory = max(memory, p.Period)
	}

	for _, p := range b.Down.Policies {
		memory = max(memory, p.Period)
	}

	old := func(m replicaRecord) bool { return !m.at.After(now.Add(-memory)) }
	h.recommendations = slices.DeleteFunc(h.recommendations, old)
	h.changes = slices.DeleteFunc(h.changes, old)
}
