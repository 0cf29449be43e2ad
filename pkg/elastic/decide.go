// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"time"

	"crane.io/crane/pkg/units"
)

// Phase describes how the advertised amount changes.
type Phase string

// Phases of the advertised amount.
const (
	Steady    Phase = "steady"
	Growing   Phase = "growing"
	Shrinking Phase = "shrinking"
	// Waiting means that the offer is higher, but not for long enough.
	Waiting Phase = "waiting"
	// Deficit means that pods hold more than the offer.
	Deficit Phase = "deficit"
	// Holding means that an input is unknown; Withdrawn that it was unknown for so long that only what pods hold is advertised.
	Holding   Phase = "holding"
	Withdrawn Phase = "withdrawn"
)

// Result is the amount to advertise, with its reasons.
type Result[T Amount] struct {
	Terms[T]
	At    time.Time
	Phase Phase
	// Advertise is in whole units. NeedsWrite means that the node has to be updated.
	Advertise  T
	NeedsWrite bool
	// Deficit is the part of the allocation above the offer; 0 if unknown.
	Deficit T
	// AllocatedShare is above 1 with a deficit. It is valid only if Known, so that no pod is evicted for an unknown offer.
	AllocatedShare units.Ratio
	Known          bool
}

// State is the memory between decisions. The zero value is that of a new agent.
type State[T Amount] struct {
	started              bool
	advertised           T
	lastAt, lastComplete time.Time
	offers               window[T]
	growingSince         time.Time // start of the growth or its last step; zero while it may not grow
	resumeAmount         T
	resumeUntil          time.Time
}

// Resume makes the next decision with complete inputs start from the amount of an agent that stopped in order at ended.
func (s *State[T]) Resume(advertised T, ended time.Time, p Policy[T]) {
	s.resumeAmount = advertised
	s.resumeUntil = ended.Add(p.Resume)
}

// Decide decides for the time in.At, which increases between decisions; after a clock was set back or decisions were missed, an offer has
// to become stable again. The result is never above allocatable - reserve, and never below what pods hold, which takes precedence.
func Decide[T Amount](in Input[T], p Policy[T], s *State[T]) Result[T] {
	t, isUpperBound := computeTerms(&in, &p)
	r := Result[T]{Terms: t, At: in.At}
	now := s.advanceTime(&in, &p)

	if !in.PodsKnown {
		r.Problem = joinProblems(r.Problem, "the pods of the node are unknown")
		s.resetOffers()
		r.Phase = Holding
		r.Advertise = now
		r.NeedsWrite = differsFromNode(&in, now)

		return r
	}

	target := now
	switch {
	case r.Problem == "":
		target = s.followOffer(&r, &p, now)
	case in.At.Sub(s.lastComplete) > p.Hold:
		s.resetOffers()
		r.Phase = Withdrawn
		target = 0

	default:
		s.resetOffers()
		r.Phase = Holding
		if isUpperBound {
			target = min(now, r.Offer)
		}
	}

	if r.Allocatable > 0 {
		target = min(target, r.ceiling(p.Unit))
	}

	// What pods hold takes precedence over every bound.
	target = max(target, r.Allocated)

	r.Known = r.Problem == ""
	if r.Known {
		r.Deficit = max(r.Allocated-r.Offer, 0)
		r.AllocatedShare = AllocatedShare(r.Allocated, r.Offer, p.Unit)
	}

	s.applyTarget(&in, &p, &r, now, target)
	return r
}

// advanceTime records the time and returns the advertised amount.
func (s *State[T]) advanceTime(in *Input[T], p *Policy[T]) T {
	if !s.started {
		s.started = true
		s.lastComplete = in.At
		s.lastAt = in.At
		s.advertised = roundDown(in.Advertised, p.Unit)
	}

	if d := in.At.Sub(s.lastAt); d < 0 || d > p.MaxAge {
		s.resetOffers()
		if d < 0 {
			s.lastComplete = in.At
		}
	}

	s.lastAt = in.At
	return s.advertised
}

// resetOffers drops the history of offers.
func (s *State[T]) resetOffers() {
	s.offers = window[T]{}
	s.growingSince = time.Time{}
}

// followOffer returns the next amount while all inputs are known.
func (s *State[T]) followOffer(r *Result[T], p *Policy[T], now T) T {
	s.lastComplete = r.At
	if rest := s.resumeUntil.Sub(r.At); rest >= 0 && rest <= p.Resume+clockTolerance {
		now = max(now, min(s.resumeAmount, r.Offer))
	}

	s.resumeAmount = 0
	s.resumeUntil = time.Time{}

	covered := s.offers.add(r.At, r.Offer, p.Stable)
	r.Stable = s.offers.minimum()
	r.Since = s.offers.since
	r.Phase = Steady

	switch {
	case r.Offer < now:
		s.growingSince = time.Time{}
		r.Phase = Shrinking
		return r.Offer
	case r.Stable <= now || !covered:
		s.growingSince = time.Time{}
		if r.Offer > now {
			r.Phase = Waiting
		}

		return now

	case s.growingSince.IsZero():
		s.growingSince = r.At
	}

	r.Phase = Growing
	// It grows by at most one minute's step at once, however long ago the last decision was.
	step := float64(p.Growth) * min(r.At.Sub(s.growingSince).Minutes(), 1) * float64(r.Allocatable)

	return min(r.Stable, now+roundDown(T(step+1e-6), p.Unit))
}

// applyTarget sets the result to the target if the change is material.
func (s *State[T]) applyTarget(in *Input[T], p *Policy[T], r *Result[T], now, target T) {
	if r.Known && r.Deficit > 0 {
		r.Phase = Deficit
	}

	// A small change is written only to or from 0, or if the node promises less than pods hold or more than the ceiling.
	changed := target - now
	step := max(fraction(r.Allocatable, p.Material), p.Unit)

	must := target == 0 || now == 0 || now < r.Allocated || r.Allocatable > 0 && now > max(r.ceiling(p.Unit), r.Allocated)
	if changed == 0 || !must && max(changed, -changed) < step {
		r.Advertise = now
		r.NeedsWrite = differsFromNode(in, now)
		return
	}

	if changed > 0 && !s.growingSince.IsZero() {
		s.growingSince = r.At
	}

	s.advertised = target
	r.Advertise = target
	r.NeedsWrite = true
}

// differsFromNode reports whether the node shows another amount than decided, as after a kubelet has reset it. That is written whether or
// not it is material.
func differsFromNode[T Amount](in *Input[T], now T) bool {
	if in.NotAdvertised {
		return now > 0
	}

	return in.Advertised != now
}

func joinProblems(a, b string) string {
	if a == "" {
		return b
	}

	return a + "; " + b
}

// window computes a sliding minimum: it keeps only values that are smaller than all later ones.
type window[T Amount] struct {
	since  time.Time // time of the first value
	points []point[T]
}

type point[T Amount] struct {
	at    time.Time
	value T
}

// maxPoints limits a window; beyond it two neighbors are merged to the smaller one.
const maxPoints = 512

// add adds a value and drops those older than span. covered reports whether the window spans all of it.
func (w *window[T]) add(at time.Time, value T, span time.Duration) (covered bool) {
	if w.since.IsZero() {
		w.since = at
	}

	for n := len(w.points); n > 0 && w.points[n-1].value >= value; n-- {
		w.points = w.points[:n-1]
	}

	old := 0
	for old < len(w.points) && at.Sub(w.points[old].at) > span {
		old++
	}

	w.points = append(w.points[:0], w.points[old:]...)
	if len(w.points) == maxPoints {
		// The older value is smaller and takes the place of the younger.
		w.points[maxPoints-1].value = w.points[maxPoints-2].value
		w.points = append(w.points[:maxPoints-2], w.points[maxPoints-1])
	}

	w.points = append(w.points, point[T]{at, value})
	return at.Sub(w.since) >= span
}

// minimum returns the smallest value; 0 for an empty window.
func (w *window[T]) minimum() T {
	if len(w.points) == 0 {
		return 0
	}

	return w.points[0].value
}
