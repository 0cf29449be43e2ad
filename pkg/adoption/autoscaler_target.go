// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"math"

	"crane.io/crane/pkg/rightsize"
)

// Target is a share of a request at which an autoscaler adds pods. Request x target is its scale point: where the request
// moves alone, the autoscaler acts at another use than before.
type Target struct {
	// Container is empty where the requests of the whole pod count.
	Container string `json:"container,omitempty"`
	// Memory is false for CPU.
	Memory bool `json:"memory,omitempty"`
	// Percent of the request, 1 or more.
	Percent int32 `json:"percent"`
}

// sameRequest tells whether two targets are about the same request.
func (t Target) sameRequest(other Target) bool {
	return t.Container == other.Container && t.Memory == other.Memory
}

// String is for messages: "cpu of app at 70 %".
func (t Target) String() string {
	text := "cpu"
	if t.Memory {
		text = "memory"
	}
	if t.Container != "" {
		text += " of " + t.Container
	}
	return fmt.Sprintf("%s at %d %%", text, t.Percent)
}

// AdjustedTarget is a target that moves with the requests, as it is written down.
type AdjustedTarget struct {
	// Target is what it was before adoption.
	Target
	// Set is what it was told to be last, Was what it had been told before: a write may have been lost.
	Set      int32 `json:"set"`
	Previous int32 `json:"was"`
}

// tie notes what the targets were before adoption; those that come later are noted as they are found.
func (d *decision) tie() {
	for _, t := range d.in.Targets {
		if d.s.adjustedTarget(t) == nil {
			d.s.AdjustedTargets = append(d.s.AdjustedTargets, AdjustedTarget{Target: t, Set: t.Percent, Previous: t.Percent})
		}
	}
}

func (s *State) adjustedTarget(t Target) *AdjustedTarget {
	for i := range s.AdjustedTargets {
		if s.AdjustedTargets[i].sameRequest(t) {
			return &s.AdjustedTargets[i]
		}
	}
	return nil
}

// findTargetDrift says which target somebody else has changed.
func findTargetDrift(in Input, s State) string {
	for _, t := range in.Targets {
		if k := s.adjustedTarget(t); k != nil && t.Percent != k.Percent && t.Percent != k.Set && t.Percent != k.Previous {
			return fmt.Sprintf("somebody has set the target of the autoscaler to %s, it was %d %%", t, k.Set)
		}
	}
	return ""
}

// follow moves the targets of the autoscaler with what the pods ask for, the changes of this look included: so that it acts at
// the use at which it acted before. It tells whether all have the value that they had before adoption.
func (d *decision) follow() (back bool) {
	if d.s.Phase == Untouched || d.s.Phase == Stopped {
		return true
	}
	d.tie()
	back = true
	for _, t := range d.in.Targets {
		k := d.s.adjustedTarget(t)
		to := k.Target
		to.Percent = d.percent(*k)
		back = back && to.Percent == k.Percent && t.Percent == k.Percent
		if to.Percent == t.Percent {
			continue
		}
		if k.Set != to.Percent {
			k.Previous, k.Set = t.Percent, to.Percent
		}
		d.plan.Targets = append(d.plan.Targets, to)
	}
	return back
}

// percent is what keeps the scale point of a target: of all pods together, for they have one target.
func (d *decision) percent(k AdjustedTarget) int32 {
	changed := map[string]Size{}
	for _, c := range d.plan.Resizes {
		changed[c.UID] = c.To
	}
	var before, after float64
	known := d.known()
	for _, p := range d.in.Pods {
		now := p.size()
		then := now
		if known(p) {
			then, _ = p.InPlaceSize(d.s.Original)
		}
		if to, ok := changed[p.UID]; ok {
			now = now.merge(to)
		}
		before, after = before+float64(then.sumRequests(k.Target)), after+float64(now.sumRequests(k.Target))
	}
	if before <= 0 || after <= 0 {
		return k.Set // Nothing that could be compared: it stays.
	}
	return int32(min(max(math.Round(float64(k.Percent)*before/after), 1), math.MaxInt32))
}

// merge is a size in which the amounts of another replace its own.
func (s Size) merge(other Size) Size {
	out := s.Clone()
	for _, a := range other.amounts() {
		v, _ := other.get(a)
		out.set(a, v)
	}
	return out
}

// sumRequests adds up what the containers that a target is about ask for.
func (s Size) sumRequests(t Target) int64 {
	f := cpuRequest
	if t.Memory {
		f = memoryRequest
	}
	if t.Container != "" {
		s = s.restrictTo(Size{Containers: map[string]rightsize.Resources{t.Container: {}}})
	}
	sum := int64(0)
	for _, a := range s.amounts() {
		if a.field == f {
			v, _ := s.get(a)
			sum += v
		}
	}
	return sum
}
