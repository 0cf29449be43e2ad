// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"
	"slices"

	"crane.io/crane/pkg/series"
)

// restore plans what is given back: to containers that no rule holds down any more, the most important first, by a step at each
// measurement and never so much that a rule would fire again. Where no rule could throttle the pod any more, all is given back at once.
func (d *decision) restore() []Throttle {
	if len(d.s.taken) == 0 {
		return nil
	}
	var out []Throttle
	given, stepped := 0.0, false
	for _, p := range d.mostImportant(func(id string) bool { return d.s.taken[id] != nil }) {
		room, held, bound := d.room(p, CPU)
		if held {
			continue
		}
		for i := range p.Containers {
			c := &p.Containers[i]
			k := d.s.taken[c.ID]
			if k == nil || c.Quota <= 0 || d.changed[c.ID] {
				continue
			}
			to, why := k.Original, "no rule throttles this pod any more"
			switch {
			case bound && math.IsInf(room, 1):
				// Nothing says how much the node can bear: a step of one container, and the next measurement decides on.
				to, why = raise(k, room), "the node is calm"
				if stepped {
					continue
				}
				stepped, d.s.gave = true, d.o.At
			case bound:
				to = raise(k, room-given)
				why = fmt.Sprintf("the node is calm, %.0fm are free below the threshold and its margin", room-given)
			}
			if same(to, c.Quota) {
				continue
			}
			gives := giving(k, to)
			given += float64(gives)
			out = append(out, Throttle{
				Pod: p.ref(), ContainerID: c.ID, ContainerOf: c.Name, From: c.Quota, To: to, Original: k.Original, Frees: -gives,
				Weight: p.weight(to, k.Before), Why: why,
			})
		}
	}
	return out
}

// mostImportant are the pods with a container that something was taken from, those first that get it back first.
func (d *decision) mostImportant(taken func(id string) bool) []*Pod {
	var pods []*Pod
	for i := range d.o.Pods {
		if slices.ContainsFunc(d.o.Pods[i].Containers, func(c Container) bool { return taken(c.ID) }) {
			pods = append(pods, &d.o.Pods[i])
		}
	}
	slices.SortFunc(pods, func(a, b *Pod) int { return -first(a.Elastic, b.Elastic) })
	slices.SortStableFunc(pods, func(a, b *Pod) int { return int(b.Priority) - int(a.Priority) })
	return pods
}

// room is how much of a resource may be given back before a rule that may throttle the pod fires, or one that evicts for the use of the
// resource: nobody is to be evicted for what somebody else gets back. held tells that one of them has fired and has not ended; bound that
// there is one that may throttle the pod.
func (d *decision) room(p *Pod, of Resource) (room float64, held, bound bool) {
	room = math.Inf(1)
	for i := range d.policy.Rules {
		r := &d.policy.Rules[i]
		takes := r.Action.takes(of) && slices.Contains(p.Allowed, r.Action.Name)
		if r.Preview || !takes && (r.Action.Evict == nil || d.findings[i].Of != of) {
			continue
		}
		free, holds := d.free(r, &d.findings[i], of)
		room, held, bound = min(room, free), held || holds, bound || takes
	}
	if held && bound {
		return 0, true, true
	}
	return room, false, bound
}

// free is how much of a resource is free below a rule's threshold and its margin, infinite where the rule does not say. holds tells that
// nothing may be given back now.
func (d *decision) free(r *Rule, f *Finding, of Resource) (room float64, holds bool) {
	st := d.s.rules[r.Name]
	switch f.Phase {
	case Firing, Falling, Held:
		return 0, true
	case Calm, Rising:
		// After a start, until it has been calm for long enough.
		if !st.judged || d.again(r) {
			return 0, true
		}
		free, ok := st.metric.amountOf(r.Above*(1-float64(d.policy.Limits.Margin))-f.Value, d.o.Node)
		if ok && f.Of == of {
			return free, false
		}
	case Unknown:
		// Whether the node has room is not known; for a while it may come back.
		return math.Inf(1), !st.judged || d.o.At.Sub(st.unknownSince) < holdFor(r, d.policy.Limits)
	}
	return math.Inf(1), false
}

// raise is the next quota of a throttled container, the present one where there is no room for more.
func raise(k *Taken, room float64) Quota {
	step := max(series.MilliCPU(float64(k.Set)*float64(k.Step)), minQuota)
	to := k.Set + Quota(step)
	end := k.Original
	if end == Unlimited {
		end = Quota(max(k.Before, 0))
	}
	if to >= end {
		to = max(end, k.Set)
	}
	if float64(to-k.Set) > room {
		if room < float64(minQuota) {
			return k.Set
		}
		to = k.Set + Quota(room)
	}
	if to >= end {
		return k.Original
	}
	return to
}

// giving is how much more a container may use with a quota.
func giving(k *Taken, to Quota) series.MilliCPU {
	if to == Unlimited {
		to = max(Quota(k.Before), k.Set)
	}
	return series.MilliCPU(to - k.Set)
}
