// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"math"
	"slices"
	"time"
)

// Select says which of several policies counts.
type Select int

const (
	// SelectMax takes the policy that allows the largest change.
	SelectMax Select = iota
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

// Rules are what a HorizontalPodAutoscaler's behavior says of one direction.
type Rules struct {
	// Stabilisation is how far back the most cautious recommendation counts.
	Stabilisation time.Duration
	// Policies are the rate limits; without any there is none.
	Policies []RatePolicy
	Select   Select
}

// Behavior is what a HorizontalPodAutoscaler may do in each direction.
type Behavior struct {
	Up, Down Rules
}

// DefaultBehavior is what an HPA of autoscaling/v2 does that names no behavior: up at once, at most to the double or by 4 pods in
// 15 s, whichever is more; down to the highest recommendation of the last stabilisation (the controller's 300 s).
func DefaultBehavior(stabilisation time.Duration) Behavior {
	const period = 15 * time.Second
	return Behavior{
		Up:   Rules{Policies: []RatePolicy{{Percent: 100, Period: period}, {Pods: 4, Period: period}}},
		Down: Rules{Stabilisation: stabilisation, Policies: []RatePolicy{{Percent: 100, Period: period}}},
	}
}

// History is what the HPA remembers between rounds: its recommendations and what it did, as far back as its behavior asks. The
// zero value is empty and ready. It is not safe for concurrent use.
type History struct {
	recommended []moment
	changes     []moment // signed
}

// moment is a number of replicas and when it was decided.
type moment struct {
	at       time.Time
	replicas int32
}

// Limit turns what the metrics ask for into what may be set now: stabilised, then bound by the rate policies and by [low, high].
// It remembers the recommendation; the caller reports what it then did with Scaled.
func (h *History) Limit(b Behavior, now time.Time, current, desired, low, high int32) int32 {
	h.forget(b, now)
	stable := h.stabilise(b, now, current, desired)
	h.recommended = append(h.recommended, moment{now, desired})
	if stable > current {
		stable = min(stable, max(h.most(b.Up, now, current), current))
	}
	if stable < current {
		stable = max(stable, min(h.least(b.Down, now, current), current))
	}
	return min(max(stable, low), high)
}

// Scaled remembers a change of replicas.
func (h *History) Scaled(now time.Time, from, to int32) {
	if from != to {
		h.changes = append(h.changes, moment{now, to - from})
	}
}

// stabilise returns the number nearest to current among the recommendations of each direction's window.
func (h *History) stabilise(b Behavior, now time.Time, current, desired int32) int32 {
	up, down := desired, desired
	for _, r := range h.recommended {
		if r.at.After(now.Add(-b.Up.Stabilisation)) {
			up = min(up, r.replicas)
		}
		if r.at.After(now.Add(-b.Down.Stabilisation)) {
			down = max(down, r.replicas)
		}
	}
	return min(max(current, up), down)
}

// most returns how high the policies let replicas go.
func (h *History) most(r Rules, now time.Time, current int32) int32 {
	return choose(r, math.MaxInt32, current, r.Select == SelectMin, func(p RatePolicy) int32 {
		start := h.startOf(p.Period, now, current)
		if p.Percent > 0 {
			return ceil(float64(start) * (1 + float64(p.Percent)/100))
		}
		return start + p.Pods
	})
}

// least returns how low the policies let replicas go.
func (h *History) least(r Rules, now time.Time, current int32) int32 {
	return choose(r, 0, current, r.Select == SelectMax, func(p RatePolicy) int32 {
		start := h.startOf(p.Period, now, current)
		if p.Percent > 0 {
			return int32(math.Floor(float64(start) * (1 - float64(p.Percent)/100)))
		}
		return start - p.Pods
	})
}

// choose returns the lowest or the highest limit of the policies; free where there are none.
func choose(r Rules, free, current int32, lowest bool, limit func(RatePolicy) int32) int32 {
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

// startOf returns the replicas at the start of a period that ends now.
func (h *History) startOf(period time.Duration, now time.Time, current int32) int32 {
	for _, c := range h.changes {
		if c.at.After(now.Add(-period)) {
			current -= c.replicas
		}
	}
	return max(current, 0)
}

// forget drops what no window reaches any more.
func (h *History) forget(b Behavior, now time.Time) {
	memory := max(b.Up.Stabilisation, b.Down.Stabilisation)
	for _, p := range b.Up.Policies {
		memory = max(memory, p.Period)
	}
	for _, p := range b.Down.Policies {
		memory = max(memory, p.Period)
	}
	old := func(m moment) bool { return !m.at.After(now.Add(-memory)) }
	h.recommended = slices.DeleteFunc(h.recommended, old)
	h.changes = slices.DeleteFunc(h.changes, old)
}
