// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"slices"

	"crane.io/crane/pkg/series"
)

// planCPURestore plans what cpu is given back.
func (d *decision) planCPURestore() []Throttle {
	var out []Throttle
	for _, g := range planRestore(d, d.state.quotas, cpuLimits()) {
		out = append(out, Throttle{
			Pod: g.pod.ref(), ContainerID: g.container.ID, ContainerName: g.container.Name, From: g.container.Quota, To: g.to, Original: g.record.Original,
			Freed: -series.MilliCPU(g.gain), Weight: g.pod.reducedWeight(g.to, series.MilliCPU(g.record.Before)), Reason: g.reason,
		})
	}
	return out
}

// planMemoryRestore plans what memory is given back.
func (d *decision) planMemoryRestore() []MemoryThrottle {
	var out []MemoryThrottle
	for _, g := range planRestore(d, d.state.highs, memoryLimits()) {
		out = append(out, MemoryThrottle{
			Pod: g.pod.ref(), ContainerID: g.container.ID, ContainerName: g.container.Name, From: g.container.MemoryHigh, To: g.to, Original: g.record.Original,
			Freed: -max(series.Bytes(g.gain), 1), Reason: g.reason,
		})
	}
	return out
}

// mostImportant are the pods with a container that something was taken from, those first that get it back first.
func (d *decision) mostImportant(taken func(id string) bool) []*Pod {
	var pods []*Pod
	for i := range d.observation.Pods {
		if slices.ContainsFunc(d.observation.Pods[i].Containers, func(c Container) bool { return taken(c.ID) }) {
			pods = append(pods, &d.observation.Pods[i])
		}
	}
	slices.SortFunc(pods, func(a, b *Pod) int { return -trueFirst(a.Elastic, b.Elastic) })
	slices.SortStableFunc(pods, func(a, b *Pod) int { return int(b.Priority) - int(a.Priority) })
	return pods
}

// headroom is how much of a resource may be given back before a rule that may throttle the pod fires, or one that evicts for the use of the
// resource: nobody is to be evicted for what somebody else gets back. held tells that one of them has fired and has not ended; bound that
// there is one that may throttle the pod.
func (d *decision) headroom(p *Pod, of Resource) (room float64, held, bound bool) {
	room = math.Inf(1)
	for i := range d.policy.Rules {
		r := &d.policy.Rules[i]
		if d.state.rules[r.Name].metric.elasticOnly && !p.Elastic {
			continue
		}
		takes := r.throttles(of) && slices.Contains(p.Allowed, r.Action.Name)
		if r.Preview || !takes && (r.Action.Evict == nil || d.findings[i].Resource != of) {
			continue
		}
		free, holds := d.headroomBelow(r, &d.findings[i], of)
		room, held, bound = min(room, free), held || holds, bound || takes
	}
	if held && bound {
		return 0, true, true
	}
	return room, false, bound
}

// headroomBelow is how much of a resource is free below a rule's threshold and its margin, infinite where the rule does not say. holds tells that
// nothing may be given back now.
func (d *decision) headroomBelow(r *Rule, f *Finding, of Resource) (room float64, holds bool) {
	st := d.state.rules[r.Name]
	switch f.Phase {
	case Firing, Falling, Held:
		return 0, true
	case Calm, Rising:
		// After a start, until it has been calm for long enough.
		if !st.evaluated || d.restoreDelayed(r) {
			return 0, true
		}
		free, ok := st.metric.toAmount(r.Threshold*(1-float64(d.policy.Limits.RestoreMargin))-f.Value, d.observation.Node)
		if ok && f.Resource == of {
			return free, false
		}
	case Unknown:
		// Whether the node has room is not known; for a while it may come back.
		return math.Inf(1), !st.evaluated || d.observation.At.Sub(st.unknownSince) < holdFor(r, d.policy.Limits)
	}
	return math.Inf(1), false
}

// cpuLimits is how quotas are given back.
func cpuLimits() limitKind[Quota] {
	return limitKind[Quota]{CPU, func(c *Container) Quota { return c.Quota }, sameQuota, raiseQuota}
}

// sameQuota: a quota is rounded to a millicore.
func sameQuota(a, b Quota) bool {
	return a == b || a != Unlimited && b != Unlimited && a-b <= 1 && b-a <= 1
}

// raiseQuota gives back by the step by which was taken.
func raiseQuota(k *throttleRecord[Quota], room float64) Quota {
	step := max(series.MilliCPU(float64(k.Set)*float64(k.Step)), minQuota)
	to := k.Set + Quota(step)
	end := k.restoreTarget()
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

// memoryLimits is how limits of memory are given back.
func memoryLimits() limitKind[MemoryHigh] {
	return limitKind[MemoryHigh]{Memory, func(c *Container) MemoryHigh { return c.MemoryHigh }, sameMemoryHigh, raiseMemoryHigh}
}

// sameMemoryHigh: the kernel counts in pages.
func sameMemoryHigh(a, b MemoryHigh) bool {
	return a == b || a != NoMemoryHigh && b != NoMemoryHigh && a-b < highRounding && b-a < highRounding
}

// raiseMemoryHigh gives back by tenths.
func raiseMemoryHigh(k *throttleRecord[MemoryHigh], room float64) MemoryHigh {
	step := max(float64(k.Set)*restoreRatio, float64(minMemoryHigh))
	end := k.restoreTarget()
	if step = min(step, float64(end-k.Set)); step > room {
		return k.Set
	}
	if to := k.Set + MemoryHigh(step); to < end {
		return to
	}
	return k.Original
}
