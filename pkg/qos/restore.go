// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"slices"

	"crane.io/crane/pkg/units"
)

// planCPURestore plans the CPU quotas to raise.
func (d decision) planCPURestore(findings []Finding, changed map[limitKey]bool) []Throttle {
	var out []Throttle
	for _, step := range planRestore(d, findings, changed, d.state.quotas, cpuLimits()) {
		out = append(out, Throttle{
			Pod:           step.pod.ref(),
			ContainerID:   step.container.ID,
			ContainerName: step.container.Name,
			From:          step.container.Quota,
			To:            step.to,
			Original:      step.record.Original,
			Freed:         -units.MilliCPU(step.gain),
			Weight:        step.pod.reducedWeight(step.to, units.MilliCPU(step.record.Before)),
			Reason:        step.reason,
		})
	}

	return out
}

// planMemoryRestore plans the memory limits to raise.
func (d decision) planMemoryRestore(findings []Finding, changed map[limitKey]bool) []MemoryThrottle {
	var out []MemoryThrottle
	for _, step := range planRestore(d, findings, changed, d.state.highs, memoryLimits()) {
		out = append(out, MemoryThrottle{
			Pod:           step.pod.ref(),
			ContainerID:   step.container.ID,
			ContainerName: step.container.Name,
			From:          step.container.MemoryHigh,
			To:            step.to,
			Original:      step.record.Original,
			Freed:         -max(units.Bytes(step.gain), 1),
			Reason:        step.reason,
		})
	}

	return out
}

// mostImportant returns the pods with a throttled container, the first to restore first.
func (o *Observation) mostImportant(throttled func(id string) bool) []*Pod {
	var pods []*Pod
	for i := range o.Pods {
		if slices.ContainsFunc(o.Pods[i].Containers, func(c Container) bool { return throttled(c.ID) }) {
			pods = append(pods, &o.Pods[i])
		}
	}

	slices.SortFunc(pods, func(a, b *Pod) int { return -trueFirst(a.Elastic, b.Elastic) })
	slices.SortStableFunc(pods, func(a, b *Pod) int { return int(b.Priority) - int(a.Priority) })
	return pods
}

// headroom returns how much of a resource may be restored before a rule fires that may throttle the pod or evicts for the resource: no pod
// is evicted for what another one regains. blocked reports that such a rule has fired and not ended, mayThrottle that a rule may throttle
// the pod.
func (d decision) headroom(findings []Finding, p *Pod, resource units.Resource) (room float64, blocked, mayThrottle bool) {
	room = math.Inf(1)
	for i := range d.policy.Rules {
		r := &d.policy.Rules[i]
		if d.metric(r).elasticOnly && !p.Elastic {
			continue
		}

		throttles := d.metric(r).throttled(&r.Action, resource) && slices.Contains(p.Allowed, r.Action.Name)
		if r.Preview || !throttles && (r.Action.Evict == nil || findings[i].Resource != resource) {
			continue
		}

		free, blocks := d.headroomBelow(r, &findings[i], resource)
		room = min(room, free)
		blocked = blocked || blocks
		mayThrottle = mayThrottle || throttles
	}

	if blocked && mayThrottle {
		return 0, true, true
	}

	return room, false, mayThrottle
}

// headroomBelow returns how much of a resource is free below a rule's threshold and its margin, infinite if the metric does not determine
// it. blocked reports that nothing may be restored now.
func (d decision) headroomBelow(r *Rule, f *Finding, resource units.Resource) (room float64, blocked bool) {
	st := d.state.rules[r.Name]
	switch f.Phase {
	case Firing, Falling, Held:
		return 0, true

	case Calm, Rising:
		// After a start, until the rule was calm often enough.
		if !st.evaluated || d.restoreDelayed(r) {
			return 0, true
		}

		free, ok := st.metric.toAmount(r.Threshold*(1-float64(d.policy.Limits.RestoreMargin))-f.Value, d.observation.Node)
		if ok && f.Resource == resource {
			return free, false
		}

	case Unknown:
		// The metric may be known again soon.
		return math.Inf(1), !st.evaluated || d.observation.At.Sub(st.unknownSince) < holdFor(r, d.policy.Limits)
	}

	return math.Inf(1), false
}

// cpuLimits describes how quotas are compared and raised.
func cpuLimits() limitKind[Quota] {
	return limitKind[Quota]{
		resource: units.CPU,
		inForce:  func(c *Container) Quota { return c.Quota },
		same:     sameQuota,
		floor:    func(c *Container) Quota { return Quota(c.Request) },
		raise:    raiseQuota,
	}
}

// sameQuota compares quotas, which are rounded to a millicore.
func sameQuota(a, b Quota) bool {
	return a == b || a != Unlimited && b != Unlimited && a-b <= 1 && b-a <= 1
}

// raiseQuota returns the next quota, one step up.
func raiseQuota(record *throttleRecord[Quota], room float64) Quota {
	step := max(units.MilliCPU(float64(record.Set)*float64(record.Step)), minQuota)
	to := record.Set + Quota(step)
	end := record.restoreTarget()
	if to >= end {
		to = max(end, record.Set)
	}

	if float64(to-record.Set) > room {
		if room < float64(minQuota) {
			return record.Set
		}

		to = record.Set + Quota(room)
	}

	if to >= end {
		return record.Original
	}

	return to
}

// memoryLimits describes how memory limits are compared and raised.
func memoryLimits() limitKind[MemoryHigh] {
	return limitKind[MemoryHigh]{
		resource: units.Memory,
		inForce:  func(c *Container) MemoryHigh { return c.MemoryHigh },
		same:     sameMemoryHigh,
		floor:    func(c *Container) MemoryHigh { return MemoryHigh(c.RequestMemory) },
		raise:    raiseMemoryHigh,
	}
}

// sameMemoryHigh compares limits, which the kernel rounds to pages.
func sameMemoryHigh(a, b MemoryHigh) bool {
	return a == b || a != NoMemoryHigh && b != NoMemoryHigh && a-b < highRounding && b-a < highRounding
}

// raiseMemoryHigh returns the next limit, a tenth higher.
func raiseMemoryHigh(record *throttleRecord[MemoryHigh], room float64) MemoryHigh {
	step := max(float64(record.Set)*restoreRatio, float64(minMemoryHigh))
	end := record.restoreTarget()
	step = min(step, float64(end-record.Set))
	if step > room {
		return record.Set
	}

	if to := record.Set + MemoryHigh(step); to < end {
		return to
	}

	return record.Original
}
