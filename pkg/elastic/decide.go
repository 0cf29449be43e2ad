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
	Advertise T
	Write     bool
	// Deficit is by how much pods hold more than the offer, as far as that is known.
	Deficit T
	// Distributed is what pods hold as a share of what the node can bear, as Share reckons it: more than 1 where there is a deficit. It
	// counts only where Known: nobody is to be evicted for an offer that is not known.
	Distributed series.Ratio
	Known       bool
}

// State is what decisions remember. The zero value is that of an agent that has just started.
type State[T Amount] struct {
	started    bool
	advertised T
	last, good time.Time
	recent     window[T]
	growing    time.Time // since when it may grow, or has grown last; zero where it may not
	resume     T
	until      time.Time
}

// Resume lets the next decision with complete inputs start from what an agent had advertised that ended in order at a time.
func (s *State[T]) Resume(advertised T, ended time.Time, p Policy[T]) {
	s.resume, s.until = advertised, ended.Add(p.Resume)
}

// Decide decides at in.At, which goes on from one decision to the next; where a clock was set back or decisions were missing, an offer has to
// be stable anew. Nothing is advertised above allocatable - reserve, and nothing below what pods hold, which comes first.
func Decide[T Amount](in Input[T], p Policy[T], s *State[T]) Result[T] {
	t, bounded := reckon(&in, &p)
	r := Result[T]{Terms: t, At: in.At}
	now := s.advance(&in, &p)
	if !in.PodsKnown {
		r.Problem = join(r.Problem, "the pods of the node are not known")
		s.forget()
		r.Phase, r.Advertise, r.Write = Holding, now, foreign(&in, now)
		return r
	}
	target := now
	switch {
	case r.Problem == "":
		target = s.follow(&r, &p, now)
	case in.At.Sub(s.good) > p.Hold:
		s.forget()
		r.Phase, target = Withdrawn, 0
	default:
		s.forget()
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
		r.Distributed = Share(r.Allocated, r.Offer, p.Unit)
	}
	s.settle(&in, &p, &r, now, target)
	return r
}

// advance takes note of the time and returns what is advertised at present.
func (s *State[T]) advance(in *Input[T], p *Policy[T]) T {
	if !s.started {
		s.started, s.good, s.last = true, in.At, in.At
		s.advertised = down(in.Shown, p.Unit)
	}
	if d := in.At.Sub(s.last); d < 0 || d > p.MaxAge {
		s.forget()
		if d < 0 {
			s.good = in.At
		}
	}
	s.last = in.At
	return s.advertised
}

// forget drops what was seen of offers.
func (s *State[T]) forget() {
	s.recent = window[T]{}
	s.growing = time.Time{}
}

// follow is what is advertised next where all is known.
func (s *State[T]) follow(r *Result[T], p *Policy[T], now T) T {
	s.good = r.At
	if left := s.until.Sub(r.At); left >= 0 && left <= p.Resume+tolerance {
		now = max(now, min(s.resume, r.Offer))
	}
	s.resume, s.until = 0, time.Time{}
	covered := s.recent.add(r.At, r.Offer, p.Stable)
	r.Stable, r.Since = s.recent.least(), s.recent.since
	r.Phase = Steady
	switch {
	case r.Offer < now:
		s.growing = time.Time{}
		r.Phase = Shrinking
		return r.Offer
	case r.Stable <= now || !covered:
		s.growing = time.Time{}
		if r.Offer > now {
			r.Phase = Waiting
		}
		return now
	case s.growing.IsZero():
		s.growing = r.At
	}
	r.Phase = Growing
	// A minute's growth is the most at once, however long nobody has decided.
	step := float64(p.Growth) * min(r.At.Sub(s.growing).Minutes(), 1) * float64(r.Allocatable)
	return min(r.Stable, now+down(T(step+1e-6), p.Unit))
}

// settle finds out whether the change is material. What is not stays as it is.
func (s *State[T]) settle(in *Input[T], p *Policy[T], r *Result[T], now, target T) {
	if r.Known && r.Deficit > 0 {
		r.Phase = Deficit
	}
	changed := target - now
	step := max(share(r.Allocatable, p.Material), p.Unit)
	must := target == 0 || now == 0 || now < r.Allocated || r.Allocatable > 0 && now > max(r.ceiling(p.Unit), r.Allocated)
	if changed == 0 || !must && max(changed, -changed) < step {
		r.Advertise, r.Write = now, foreign(in, now)
		return
	}
	if changed > 0 && !s.growing.IsZero() {
		s.growing = r.At
	}
	s.advertised = target
	r.Advertise, r.Write = target, true
}

// foreign tells that the node shows something else than was decided, as after a kubelet has set it to 0: that is no measure of what is
// material.
func foreign[T Amount](in *Input[T], now T) bool {
	if in.Absent {
		return now > 0
	}
	return in.Shown != now
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
