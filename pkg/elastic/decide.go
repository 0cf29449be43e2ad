// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"time"

	"crane.io/crane/pkg/series"
)

// Phase is what becomes of what is advertised.
type Phase string

// The phases.
const (
	Steady    Phase = "steady"
	Growing   Phase = "growing"
	Shrinking Phase = "shrinking"
	// Waiting tells that the offer is higher and has not been for long enough.
	Waiting Phase = "waiting"
	// Deficit tells that pods hold more than the offer.
	Deficit Phase = "deficit"
	// Holding tells that something is not known, Withdrawn that it has not been for so long that nothing more is offered.
	Holding   Phase = "holding"
	Withdrawn Phase = "withdrawn"
)

// Result is what a node is to advertise, and why.
type Result[T Amount] struct {
	Terms[T]
	At    time.Time
	Phase Phase
	// Advertise is what the node is to show: whole units. Write tells that it has to be written.
	Advertise  T
	NeedsWrite bool
	// Deficit is by how much pods hold more than the offer, as far as that is known.
	Deficit T
	// AllocatedShare is what pods hold as a share of what the node can bear, as Share reckons it: more than 1 where there is a deficit. It
	// counts only where Known: nobody is to be evicted for an offer that is not known.
	AllocatedShare series.Ratio
	Known          bool
}

// State is what decisions remember. The zero value is that of an agent that has just started.
type State[T Amount] struct {
	started              bool
	advertised           T
	lastAt, lastComplete time.Time
	offers               window[T]
	growingSince         time.Time // since when it may grow, or has grown last; zero where it may not
	resumeAmount         T
	resumeUntil          time.Time
}

// Resume lets the next decision with complete inputs start from what an agent had advertised that ended in order at a time.
func (s *State[T]) Resume(advertised T, ended time.Time, p Policy[T]) {
	s.resumeAmount, s.resumeUntil = advertised, ended.Add(p.Resume)
}

// Decide decides at in.At, which goes on from one decision to the next; where a clock was set back or decisions were missing, an offer has to
// be stable anew. Nothing is advertised above allocatable - reserve, and nothing below what pods hold, which comes first.
func Decide[T Amount](in Input[T], p Policy[T], s *State[T]) Result[T] {
	t, bounded := computeTerms(&in, &p)
	r := Result[T]{Terms: t, At: in.At}
	now := s.advanceTime(&in, &p)
	if !in.PodsKnown {
		r.Problem = joinProblems(r.Problem, "the pods of the node are not known")
		s.resetOffers()
		r.Phase, r.Advertise, r.NeedsWrite = Holding, now, differsFromNode(&in, now)
		return r
	}
	target := now
	switch {
	case r.Problem == "":
		target = s.followOffer(&r, &p, now)
	case in.At.Sub(s.lastComplete) > p.Hold:
		s.resetOffers()
		r.Phase, target = Withdrawn, 0
	default:
		s.resetOffers()
		r.Phase = Holding
		if bounded {
			target = min(now, r.Offer)
		}
	}
	if r.Allocatable > 0 {
		target = min(target, r.ceiling(p.Unit))
	}
	target = max(target, r.Allocated)
	if r.Known = r.Problem == ""; r.Known {
		r.Deficit = max(r.Allocated-r.Offer, 0)
		r.AllocatedShare = AllocatedShare(r.Allocated, r.Offer, p.Unit)
	}
	s.applyTarget(&in, &p, &r, now, target)
	return r
}

// advanceTime takes note of the time and returns what is advertised at present.
func (s *State[T]) advanceTime(in *Input[T], p *Policy[T]) T {
	if !s.started {
		s.started, s.lastComplete, s.lastAt = true, in.At, in.At
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

// resetOffers drops what was seen of offers.
func (s *State[T]) resetOffers() {
	s.offers = window[T]{}
	s.growingSince = time.Time{}
}

// followOffer is what is advertised next where all is known.
func (s *State[T]) followOffer(r *Result[T], p *Policy[T], now T) T {
	s.lastComplete = r.At
	if left := s.resumeUntil.Sub(r.At); left >= 0 && left <= p.Resume+clockTolerance {
		now = max(now, min(s.resumeAmount, r.Offer))
	}
	s.resumeAmount, s.resumeUntil = 0, time.Time{}
	covered := s.offers.add(r.At, r.Offer, p.Stable)
	r.Stable, r.Since = s.offers.minimum(), s.offers.since
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
	// A minute's growth is the most at once, however long nobody has decided.
	step := float64(p.Growth) * min(r.At.Sub(s.growingSince).Minutes(), 1) * float64(r.Allocatable)
	return min(r.Stable, now+roundDown(T(step+1e-6), p.Unit))
}

// applyTarget finds out whether the change is material. What is not stays as it is.
func (s *State[T]) applyTarget(in *Input[T], p *Policy[T], r *Result[T], now, target T) {
	if r.Known && r.Deficit > 0 {
		r.Phase = Deficit
	}
	changed := target - now
	step := max(fraction(r.Allocatable, p.Material), p.Unit)
	must := target == 0 || now == 0 || now < r.Allocated || r.Allocatable > 0 && now > max(r.ceiling(p.Unit), r.Allocated)
	if changed == 0 || !must && max(changed, -changed) < step {
		r.Advertise, r.NeedsWrite = now, differsFromNode(in, now)
		return
	}
	if changed > 0 && !s.growingSince.IsZero() {
		s.growingSince = r.At
	}
	s.advertised = target
	r.Advertise, r.NeedsWrite = target, true
}

// differsFromNode tells that the node shows something else than was decided, as after a kubelet has set it to 0: that is no measure of what is
// material.
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
