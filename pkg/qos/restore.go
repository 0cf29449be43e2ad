// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"slices"

	"crane.io/crane/pkg/series"
)

// restore plans what cpu is given back.
func (d *decision) restore() []Throttle {
	var out []Throttle
	for _, g := range giveBack(d, d.s.quotas, cpuThrottled()) {
		out = append(out, Throttle{
			Pod: g.pod.ref(), ContainerID: g.container.ID, ContainerOf: g.container.Name, From: g.container.Quota, To: g.to, Original: g.taken.Original,
			Frees: -series.MilliCPU(g.gives), Weight: g.pod.weight(g.to, series.MilliCPU(g.taken.Before)), Why: g.why,
		})
	}
	return out
}

// restoreMemory plans what memory is given back.
func (d *decision) restoreMemory() []MemoryThrottle {
	var out []MemoryThrottle
	for _, g := range giveBack(d, d.s.highs, memoryThrottled()) {
		out = append(out, MemoryThrottle{
			Pod: g.pod.ref(), ContainerID: g.container.ID, ContainerOf: g.container.Name, From: g.container.High, To: g.to, Original: g.taken.Original,
			Frees: -max(series.Bytes(g.gives), 1), Why: g.why,
		})
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
		if d.s.rules[r.Name].metric.elastic && !p.Elastic {
			continue
		}
		takes := r.takes(of) && slices.Contains(p.Allowed, r.Action.Name)
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

// cpuThrottled is how quotas are given back.
func cpuThrottled() throttled[Quota] {
	return throttled[Quota]{CPU, func(c *Container) Quota { return c.Quota }, sameQuota, raiseQuota}
}

// sameQuota: a quota is rounded to a millicore.
func sameQuota(a, b Quota) bool {
	return a == b || a != Unlimited && b != Unlimited && a-b <= 1 && b-a <= 1
}

// raiseQuota gives back by the step by which was taken.
func raiseQuota(k *taken[Quota], room float64) Quota {
	step := max(series.MilliCPU(float64(k.Set)*float64(k.Step)), minQuota)
	to := k.Set + Quota(step)
	end := k.end()
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

// memoryThrottled is how limits of memory are given back.
func memoryThrottled() throttled[High] {
	return throttled[High]{Memory, func(c *Container) High { return c.High }, sameHigh, raiseHigh}
}

// sameHigh: the kernel counts in pages.
func sameHigh(a, b High) bool {
	return a == b || a != NoHigh && b != NoHigh && a-b < highRounding && b-a < highRounding
}

// raiseHigh gives back by tenths.
func raiseHigh(k *taken[High], room float64) High {
	step := max(float64(k.Set)*raiseStep, float64(leastHigh))
	end := k.end()
	if step = min(step, float64(end-k.Set)); step > room {
		return k.Set
	}
	if to := k.Set + High(step); to < end {
		return to
	}
	return k.Original
}
