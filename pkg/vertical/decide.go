// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/units"
)

// Action is a change of a request.
type Action string

// Actions.
const (
	Raise Action = "Raise"
	Lower Action = "Lower"
	Hold  Action = "Hold"
	// None means that there is no decision, or nothing to set.
	None Action = "None"
)

// Input is the input of the decision about one resource of one container.
type Input struct {
	Resource units.Resource
	Now      time.Time
	Policy   Policy
	// Estimates are the answers of all estimators, in any order.
	Estimates []Estimate
	// Request and Limit are those of the pod template, 0 for none. Current is the request that is in force: the last applied
	// decision, else Request.
	Request, Limit, Current int64
	// NodeCapacity is the allocatable amount of the largest node; 0 where it is unknown.
	NodeCapacity int64
	// LastChanges are the times at which Current was changed last.
	LastChanges ChangeTimes
}

// Sizing is the decision about one resource of one container.
type Sizing struct {
	Resource units.Resource
	// Target is the need within the policy, Uncapped the need without it. Lower and Upper bound the need. All are 0 where unknown.
	Target, Uncapped, Lower, Upper int64
	// Estimator is the one with the winning answer, empty for none.
	Estimator string
	Action    Action
	// Request and Limit are the amounts to set; 0 leaves them unchanged.
	Request, Limit int64
	// Reason describes the decision.
	Reason string
	// PolicyInvalid reports that the policy contradicts itself.
	PolicyInvalid bool
	// LastChanges is Input.LastChanges after this decision is applied.
	LastChanges ChangeTimes
	// RetryAfter is the time until a stabilization window ends that prevents a change; 0 for none.
	RetryAfter time.Duration
}

// Decide returns the request that one resource of one container should have.
func Decide(in Input) Sizing {
	r := in.Resource
	out := Sizing{Resource: r, Action: None, LastChanges: in.LastChanges}
	if !in.Policy.Controls(r) {
		out.Reason = "not among the controlled resources"
		return out
	}

	// A policy that contradicts itself keeps the request that was applied last.
	if why := in.Policy.contradiction(r); why != "" {
		out.Reason = why
		out.PolicyInvalid = true
		return out.keepCurrent(in)
	}

	c := combine(r, in.Estimates)
	if c.value <= 0 {
		out.Reason = "no estimator has an answer"
		if c.failures != "" {
			out.Reason += ": " + c.failures
		}

		return out.keepCurrent(in)
	}

	limit := in.Limit
	out.Uncapped = roundUp(r, c.value)
	out.Estimator = c.winner
	var bounds string
	out.Target, bounds = in.Policy.clamp(r, out.Uncapped, in.NodeCapacity, limit)
	out.setBounds(in, c)
	out.decideChange(in, c)

	out.Reason = fmt.Sprintf("%s estimates %s (%s)", c.winner, units.FormatAmount(r, out.Uncapped), c.reason) + prefixed(", ", bounds) + "; " + out.Reason
	if out.Request > 0 {
		out.Limit = in.Policy.limitFor(out.Request, in.Request, in.Limit)
	}

	return out
}

func prefixed(separator, why string) string {
	if why == "" {
		return ""
	}

	return separator + why
}

// keepCurrent keeps a current request that differs from that of the template.
func (s Sizing) keepCurrent(in Input) Sizing {
	if in.Current > 0 && in.Current != in.Request {
		s.Action = Hold
		s.Request = in.Current
		s.Limit = in.Policy.limitFor(s.Request, in.Request, in.Limit)
	}

	return s
}

// setBounds sets the bounds around the target, within the policy.
func (s *Sizing) setBounds(in Input, c combinedEstimate) {
	clamp := func(v float64) int64 {
		if !isValid(s.Resource, v) {
			return 0
		}

		to, _ := in.Policy.clamp(s.Resource, roundUp(s.Resource, v), in.NodeCapacity, in.Limit)
		return to
	}

	s.Lower = clamp(c.lower)
	if s.Lower > 0 {
		s.Lower = min(s.Lower, s.Target)
	}

	s.Upper = clamp(c.upper)
	if s.Upper > 0 {
		s.Upper = max(s.Upper, s.Target)
	}
}

// decideChange decides whether to change the request to the target now.
func (s *Sizing) decideChange(in Input, c combinedEstimate) {
	if in.Current <= 0 {
		s.setFirst(in)
		return
	}

	r := s.Resource
	now := in.Current
	s.Action = Hold
	s.Request = now

	share := 100 * float64(s.Target) / float64(now)
	low := in.Policy.Min[r]
	high := in.Policy.Max[r]
	switch {
	case s.Target == now:
		s.Reason = "that is the current request"
	case s.Target > now:
		must := low > 0 && now < low
		s.raise(in, share, must)
	default:
		must := high > 0 && now > high
		s.lower(in, c, share, must)
	}
}

// setFirst sets the request of a container that has none.
func (s *Sizing) setFirst(in Input) {
	if in.Policy.Up.Off {
		s.Action = None
		s.Reason = "it requests nothing, and raising is off"
		return
	}

	s.Action = Raise
	s.Request = s.Target
	s.Reason = "it requests nothing yet"
	s.LastChanges.RaisedAt = in.Now
}

// raise raises the request to the target, if the policy allows it now. must means that the request is below the allowed minimum.
func (s *Sizing) raise(in Input, share float64, must bool) {
	r := s.Resource
	threshold := in.Policy.Up.Thresholds[s.Resource]
	now := units.FormatAmount(r, in.Current)

	wait := remaining(in.Now, in.Policy.Up.Window, in.LastChanges.RaisedAt)
	switch {
	case in.Policy.Up.Off:
		s.Reason = "raising is off, it stays " + now
	case !must && share <= float64(threshold):
		s.Reason = fmt.Sprintf("that is %.0f %% of %s, and it is raised above %d %%", share, now, threshold)
	case !must && wait > 0:
		s.hold(in, wait, "raised", in.LastChanges.RaisedAt)

	default:
		s.Action = Raise
		s.Request = s.Target
		s.Reason = fmt.Sprintf("to be raised from %s", now)
		s.LastChanges.RaisedAt = in.Now
	}
}

// lower lowers the request to the target, if the policy allows it now. must means that the request is above the allowed maximum.
func (s *Sizing) lower(in Input, c combinedEstimate, share float64, must bool) {
	r := s.Resource
	threshold := in.Policy.Down.Thresholds[s.Resource]
	now := units.FormatAmount(r, in.Current)

	// A request is lowered only some time after its last change in either direction.
	window := in.Policy.Down.Window

	what := "lowered"
	at := in.LastChanges.LoweredAt
	if remaining(in.Now, window, in.LastChanges.RaisedAt) > remaining(in.Now, window, at) {
		what = "raised"
		at = in.LastChanges.RaisedAt
	}

	wait := remaining(in.Now, window, at)
	switch {
	case in.Policy.Down.Off:
		s.Reason = "lowering is off, it stays " + now
	case !must && share >= float64(threshold):
		s.Reason = fmt.Sprintf("that is %.0f %% of %s, and it is lowered below %d %%", share, now, threshold)
	case !must && c.missing != "":
		s.Reason = fmt.Sprintf("it stays %s: %s, and without that nothing is lowered", now, c.missing)
	case !must && wait > 0:
		s.hold(in, wait, what, at)

	default:
		s.Action = Lower
		s.Request = s.Target
		s.Reason = fmt.Sprintf("to be lowered from %s", now)
		s.LastChanges.LoweredAt = in.Now
	}
}

// hold keeps the request until a window ends. The text is constant while it waits.
func (s *Sizing) hold(in Input, wait time.Duration, what string, at time.Time) {
	s.RetryAfter = wait
	s.Reason = fmt.Sprintf("it stays %s until %s, as it was %s at %s",
		units.FormatAmount(s.Resource, in.Current), in.Now.Add(wait).UTC().Format(time.RFC3339), what, at.UTC().Format(time.RFC3339))
}

// maxClockSkew bounds the difference between clocks. Changes further in the future are ignored.
const maxClockSkew = time.Minute

// remaining returns the rest of a window that began with a change; 0 without one.
func remaining(now time.Time, window time.Duration, at time.Time) time.Duration {
	if at.IsZero() || at.Sub(now) > maxClockSkew {
		return 0
	}

	return max(0, at.Add(window).Sub(now))
}
