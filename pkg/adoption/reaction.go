// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
)

// Demand is the highest CPU usage of the last minutes of a container that exceeded its request.
type Demand struct {
	Pod, Container string
	Use            units.MilliCPU
}

// RaisedRequest is the CPU request of one container of one pod until a time.
type RaisedRequest struct {
	Pod       string         `json:"pod"`
	UID       string         `json:"uid"`
	Container string         `json:"container"`
	CPU       units.MilliCPU `json:"cpu"`
	Until     time.Time      `json:"until"`
}

// maxRaised bounds the raised requests of a workload, and with them the size of its state.
const maxRaised = 50

// react raises the CPU request of single pods whose usage exceeds it, for a while. Like other increases it needs neither a window nor a
// budget; an open circuit breaker and whatever blocks a change delay it. It never exceeds the room on the node, and restarts nothing.
func react(in Input, p Plan) Plan {
	p.State.Raised = slices.DeleteFunc(slices.Clone(p.State.Raised), func(r RaisedRequest) bool { return hasEnded(in, p.State, r) })
	for _, r := range p.State.Raised {
		if r.Until.After(in.Now) {
			p = p.withRequeue(r.Until.Sub(in.Now))
		}
	}

	// Pods that are never resized in place cannot be raised for a while.
	if len(in.Demands) == 0 || p.State.Reach == NewPods || p.State.Reach == Recreate || cmp.Or(in.Blocked, in.Allowance.BreakerOpen) != "" {
		return p
	}

	var raised []string
	for _, d := range in.Demands {
		r, ok := raisedRequest(in, p.State, d)
		if !ok {
			continue
		}

		i := slices.IndexFunc(p.State.Raised, r.sameContainer)
		switch {
		case i >= 0:
			p.State.Raised[i] = r
		case len(p.State.Raised) >= maxRaised:
			continue
		default:
			p.State = start(in, p.State)
			p.State.Raised = append(p.State.Raised, r)
		}

		p = p.withRequeue(r.Until.Sub(in.Now))
		raised = append(raised, fmt.Sprintf("container %s of pod %s used %s, %s until %s", d.Container, d.Pod,
			units.FormatCPU(d.Use), cpuRequest.text(int64(r.CPU)), formatClock(r.Until)))
	}

	if len(raised) == 0 {
		return p
	}

	const maxListed = 5
	text := strings.Join(raised[:min(len(raised), maxListed)], "; ")
	if more := len(raised) - maxListed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}

	return p.withEvent(false, "AdoptionReacted", "%s", text)
}

// raisedRequest returns the request that a demand leads to; ok is false if there is nothing to raise.
func raisedRequest(in Input, s State, d Demand) (r RaisedRequest, ok bool) {
	i := slices.IndexFunc(in.Pods, func(p Pod) bool { return p.Name == d.Pod })
	if i < 0 || in.Pods[i].NotResizable != "" || untouchedReason(in, s) != "" {
		return r, false
	}

	p := in.Pods[i]
	size := p.size()

	request := amount{d.Container, cpuRequest}
	now, isSet := size.get(request)
	if goal, managed := in.DesiredSize.get(request); !isSet || !managed || goal <= 0 {
		return r, false
	}

	r = RaisedRequest{Pod: p.Name, UID: p.UID, Container: d.Container}
	effective := now
	if j := slices.IndexFunc(s.Raised, r.sameContainer); j >= 0 && s.Raised[j].Until.After(in.Now) {
		effective = max(effective, int64(s.Raised[j].CPU))
	}

	if int64(d.Use) <= effective {
		return r, false
	}

	// The raise must fit into the room on the node and below the limit.
	to := int64(math.Ceil(in.Reaction.Headroom * float64(d.Use)))
	if p.Room != nil {
		to = min(to, now+int64(*p.Room))
	}
	if limit, limited := size.get(amount{d.Container, cpuLimit}); limited {
		to = min(to, limit)
	}

	r.CPU = units.MilliCPU(to)
	r.Until = in.Now.Add(in.Reaction.Hold)
	if to <= effective {
		return r, false
	}

	goal := size.Clone()
	goal.set(request, to)
	_, reason := p.InPlaceSize(goal)

	return r, reason == "" && !p.restarts(goal) && (s.Phase == Untouched || s.isKnownSize(p))
}

func (r RaisedRequest) sameContainer(other RaisedRequest) bool {
	return r.UID == other.UID && r.Container == other.Container
}

// hasEnded reports whether a raise need not be known any more: its pod is gone, or has the size without it again.
func hasEnded(in Input, s State, r RaisedRequest) bool {
	i := slices.IndexFunc(in.Pods, func(p Pod) bool { return p.UID == r.UID })
	if i < 0 {
		return true
	}

	to, reason := in.Pods[i].InPlaceSize(s.Current)
	return !r.Until.After(in.Now) && reason == "" && in.Pods[i].size().Equal(to)
}

// raisedSize returns a size with the raises of a pod that hold at a time.
func (s State) raisedSize(p Pod, size Size, now time.Time) Size {
	out := size
	for _, r := range s.Raised {
		a := amount{r.Container, cpuRequest}
		if v, ok := size.get(a); ok && r.UID == p.UID && r.Until.After(now) && int64(r.CPU) > v {
			out = out.Clone()
			out.set(a, int64(r.CPU))
		}
	}

	return out
}

// ignoreRaises sets the CPU requests of a size to those of the pod where the pod has at most what it was raised to. A second raise is
// stored before the pod gets it.
func (s State) ignoreRaises(p Pod, size *Size) {
	for _, r := range s.Raised {
		a := amount{r.Container, cpuRequest}
		if now, ok := p.size().get(a); ok && r.UID == p.UID && now <= int64(r.CPU) {
			size.set(a, now)
		}
	}
}

// endRaises returns the state with all raises ended; pods may still have them.
func (s State) endRaises(now time.Time) State {
	s.Raised = slices.Clone(s.Raised)
	for i := range s.Raised {
		if s.Raised[i].Until.After(now) {
			s.Raised[i].Until = now
		}
	}

	return s
}
