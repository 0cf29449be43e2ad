// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"math"
	"slices"
	"time"
)

// PolicySelect says which of several policies counts.
type PolicySelect int

const (
	// SelectMax takes the policy that allows the largest change.
	SelectMax PolicySelect = iota
	// SelectMin takes the one that allows the smallest.
	SelectMin
	// SelectDisabled allows no change in this direction.
	SelectDisabled
)

// RatePolicy bounds how much may change within a period.
type RatePolicy struct {
	// Pods is how many pods may come or go; not looked at where Percent is set.
	Pods int32
	// Percent is the share of the replicas at the start of the period that may come or go; 100 doubles.
	Percent int32
	// Period is the window that the bound is for.
	Period time.Duration
}

// DirectionRules are what a HorizontalPodAutoscaler's behavior says of one direction.
type DirectionRules struct {
	// StabilizationWindow is how far back the most cautious recommendation counts.
	StabilizationWindow time.Duration
	// Policies are the rate limits; without any there is none.
	Policies []RatePolicy
	Select   PolicySelect
}

// Behavior is what a HorizontalPodAutoscaler may do in each direction.
type Behavior struct {
	Up, Down DirectionRules
}

// DefaultBehavior is what an HPA of autoscaling/v2 does that names no behavior: up at once, at most to the double or by 4 pods in
// 15 s, whichever is more; down to the highest recommendation of the last stabilisation (the controller's 300 s).
func DefaultBehavior(stabilisation time.Duration) Behavior {
	const period = 15 * time.Second
	return Behavior{
		Up:   DirectionRules{Policies: []RatePolicy{{Percent: 100, Period: period}, {Pods: 4, Period: period}}},
		Down: DirectionRules{StabilizationWindow: stabilisation, Policies: []RatePolicy{{Percent: 100, Period: period}}},
	}
}

// History is what the HPA remembers between rounds: its recommendations and what it did, as far back as its behavior asks. The
// zero value is empty and ready. It is not safe for concurrent use.
type History struct {
	recommendations []replicaRecord
	changes         []replicaRecord // signed
}

// replicaRecord is a number of replicas and when it was decided.
type replicaRecord struct {
	at       time.Time
	replicas int32
}

// Limit turns what the metrics ask for into what may be set now: stabilised, then bound by the rate policies and by [low, high].
// It remembers the recommendation; the caller reports what it then did with Scaled.
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

// RecordScaling remembers a change of replicas.
func (h *History) RecordScaling(now time.Time, from, to int32) {
	if from != to {
		h.changes = append(h.changes, replicaRecord{now, to - from})
	}
}

// stabilize returns the number nearest to current among the recommendations of each direction's window.
func (h *History) stabilize(b Behavior, now time.Time, current, desired int32) int32 {
	up, down := desired, desired
	for _, r := range h.recommendations {
		if r.at.After(now.Add(-b.Up.StabilizationWindow)) {
			up = min(up, r.replicas)
		}
		if r.at.After(now.Add(-b.Down.StabilizationWindow)) {
			down = max(down, r.replicas)
		}
	}
	return min(max(current, up), down)
}

// upperLimit returns how high the policies let replicas go.
func (h *History) upperLimit(r DirectionRules, now time.Time, current int32) int32 {
	return selectLimit(r, math.MaxInt32, current, r.Select == SelectMin, func(p RatePolicy) int32 {
		start := h.replicasAtPeriodStart(p.Period, now, current)
		if p.Percent > 0 {
			return ceilReplicas(float64(start) * (1 + float64(p.Percent)/100))
		}
		return start + p.Pods
	})
}

// lowerLimit returns how low the policies let replicas go.
func (h *History) lowerLimit(r DirectionRules, now time.Time, current int32) int32 {
	return selectLimit(r, 0, current, r.Select == SelectMax, func(p RatePolicy) int32 {
		start := h.replicasAtPeriodStart(p.Period, now, current)
		if p.Percent > 0 {
			return int32(math.Floor(float64(start) * (1 - float64(p.Percent)/100)))
		}
		return start - p.Pods
	})
}

// selectLimit returns the lowest or the highest limit of the policies; free where there are none.
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

// dropExpired drops what no window reaches any more.
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
