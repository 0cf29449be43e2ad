// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
)

// decision holds the inputs of one call of Decide.
type decision struct {
	policy      *Policy
	observation *Observation
	state       *State
}

// planned collects the actions of the rules planned so far.
type planned struct {
	Actions

	limits map[limitKey]bool // changed by them
	pods   map[string]bool   // evicted by them, by UID
	freed  map[units.Resource]float64
}

// Decide returns a plan and updates the state with the observation. The caller records executed actions in the state (RecordThrottle,
// RecordEviction, RecordRefusal); a dry run records none.
func Decide(policy *Policy, o *Observation, s *State) Plan {
	s.reconcile(o, policy.Limits)
	d := decision{policy: policy, observation: s.deriveInterference(policy.Rules, o), state: s}

	findings, breaching := d.evaluateRules()
	done := planned{limits: map[limitKey]bool{}, pods: map[string]bool{}, freed: map[units.Resource]float64{}}
	plan := Plan{At: o.At, Rules: findings}
	// Rules act in their order: each one plans for what the earlier ones leave of its gap.
	for i := range policy.Rules {
		if !breaching[i] {
			continue
		}

		actions, f := d.planRule(&policy.Rules[i], findings[i], &done)
		findings[i] = f
		actions.addCause(f.Interference)

		if f.Preview {
			plan.Previews = append(plan.Previews, Preview{Rule: f.Rule, Actions: actions})
		} else {
			done.add(actions, d.observation)
		}
	}

	plan.Actions = done.Actions
	plan.Throttles = append(plan.Throttles, d.planCPURestore(findings, done.limits)...)
	plan.MemoryThrottles = append(plan.MemoryThrottles, d.planMemoryRestore(findings, done.limits)...)
	plan.Avoid = d.planAvoidance(findings)

	return plan
}

// metric returns the metric of a rule.
func (d decision) metric(r *Rule) Metric { return d.state.rules[r.Name].metric }

// evaluateRules evaluates every rule and drops the state of removed rules. breaching reports, by rule, whether to plan its actions.
func (d decision) evaluateRules() (findings []Finding, breaching []bool) {
	findings = make([]Finding, len(d.policy.Rules))
	breaching = make([]bool, len(d.policy.Rules))
	states := make(map[string]*ruleState, len(d.policy.Rules))
	for i := range d.policy.Rules {
		r := &d.policy.Rules[i]
		st := d.state.rules[r.Name]
		if st == nil || st.metric.Name != r.Metric {
			st = &ruleState{}
			st.metric, st.metricKnown = Lookup(r.Metric)
			st.metric.Name = r.Metric // Also for an unknown name, until it is corrected.
		}

		states[r.Name] = st
		findings[i], breaching[i] = st.evaluate(r, d.observation, d.policy.Limits)
	}

	d.state.rules = states
	for i := range d.policy.Rules {
		f := &findings[i]
		f.Interference = d.describeInterference(&d.policy.Rules[i])
		if f.Interference != nil && f.Reason == "" {
			f.Reason = f.Interference.String()
		}
	}

	return findings, breaching
}

// planRule plans the actions of a firing rule after those of the rules before it, and completes its finding.
func (d decision) planRule(r *Rule, f Finding, earlier *planned) (Actions, Finding) {
	metric := d.metric(r)
	var quantified bool

	var reason string
	f.Gap, f.PendingRelease, quantified, reason = d.computeGap(r, f.Value, earlier)
	gap := f.Gap - f.PendingRelease
	switch {
	case metric.NotUsage:
		reason = "nothing is throttled and no pod evicted: the metric does not measure the use of pods"
	case reason == "" && quantified && gap <= 0:
		reason = "pending releases close the gap"
	}

	var a Actions
	if reason != "" {
		f.Reason = reason
		return a, f
	}

	if metric.throttled(&r.Action, units.CPU) {
		// The throttled CPU does not predict the memory use.
		a.Throttles, f.Shortfall, reason = d.planThrottles(r, gap, quantified && f.Resource == units.CPU, earlier)
		f.Reason = cmp.Or(reason, f.Reason)
	}

	a.MemoryThrottles, reason = d.planMemoryThrottles(r, gap, quantified, earlier)
	f.Reason = cmp.Or(f.Reason, reason)
	unthrottled := f.Reason
	if r.Action.Evict == nil {
		return a, f
	}

	if deferred, reason := d.deferEvictions(r, a); deferred {
		f.Reason = cmp.Or(f.Reason, reason)
		return a, f
	}

	f.Reason = d.policy.belowWaterMark(d.observation, f.Resource, r.MaxAge)
	if f.Reason != "" {
		f.Withheld = WithheldByWaterMark
		return a, f
	}

	e := d.planEvictions(r, d.policy.capAtWaterMark(d.observation, f, gap), quantified, earlier)
	a.Evictions = e.evictions

	f.Withheld = e.withheld
	f.Reason = cmp.Or(e.reason, unthrottled)
	if e.shortfall >= 0 {
		f.Shortfall = e.shortfall
	}
	if i := f.Interference; i != nil && f.Withheld == WithheldNoCandidate && i.Antagonist == (PodRef{}) {
		f.Reason = "no pod to evict: " + i.String()
	}

	return a, f
}

// computeGap returns the amount to release for a value of the rule's metric and the part of it that is pending; quantified reports whether
// the metric determines them, reason why they are unknown.
func (d decision) computeGap(r *Rule, value float64, earlier *planned) (gap, pending float64, quantified bool, reason string) {
	metric := d.metric(r)
	if metric.Resource == NoResource {
		return 0, 0, false, ""
	}

	excess, ok := metric.toAmount(value-r.Threshold, d.observation.Node)
	if !ok {
		return 0, 0, true, "the capacity of the node is unknown"
	}

	pending = d.state.pendingRelease(metric.Resource, d.observation.At, d.policy.Limits) + earlier.freed[metric.Resource]
	return excess * (1 + float64(d.policy.Limits.Excess)), pending, true, ""
}

// belowWaterMark returns why the water mark of a resource forbids evictions; empty if it does not.
func (p *Policy) belowWaterMark(o *Observation, r units.Resource, maxAge time.Duration) string {
	mark, ok := p.WaterMarks[r]
	if !ok || r == NoResource {
		return ""
	}

	used, measured := o.Node.used(r, o.At, maxAge)
	switch {
	case !measured:
		return fmt.Sprintf("no pod is evicted: the use of %s is unknown, and its water mark is %.0f %%", r, 100*mark)
	case used <= mark:
		return fmt.Sprintf("no pod is evicted: %.1f %% of %s is used, the water mark is %.0f %%", 100*used, r, 100*mark)
	}

	return ""
}

// capAtWaterMark limits a gap to the part above the water mark, below which no pod is evicted.
func (p *Policy) capAtWaterMark(o *Observation, f Finding, gap float64) float64 {
	mark, ok := p.WaterMarks[f.Resource]
	if !ok || f.Resource == NoResource {
		return gap
	}

	used, _ := o.Node.used(f.Resource, o.At, time.Duration(1<<62))
	return min(gap, float64(used-mark)*o.Node.capacity(f.Resource)*(1+float64(p.Limits.Excess))-f.PendingRelease)
}

// add adds the actions of a rule, with the CPU and memory that they release.
func (p *planned) add(a Actions, o *Observation) {
	for _, t := range a.MemoryThrottles {
		// Reclaimable page cache already counts as available memory and closes no gap.
		p.limits[limitKey{units.Memory, t.ContainerID}] = true
	}

	for _, t := range a.Throttles {
		p.limits[limitKey{units.CPU, t.ContainerID}] = true
		p.freed[units.CPU] += float64(t.Freed)
	}

	for _, e := range a.Evictions {
		p.pods[e.Pod.UID] = true
		if i := slices.IndexFunc(o.Pods, func(q Pod) bool { return q.UID == e.Pod.UID }); i >= 0 {
			p.freed[units.CPU] += float64(max(o.Pods[i].UsedCPU.Value, 0))
			p.freed[units.Memory] += float64(max(o.Pods[i].UsedMemory.Value, 0))
		}
	}

	p.Throttles = append(p.Throttles, a.Throttles...)
	p.MemoryThrottles = append(p.MemoryThrottles, a.MemoryThrottles...)
	p.Evictions = append(p.Evictions, a.Evictions...)
}

// planAvoidance decides whether new pods are kept away: while a rule fires, during its cool-down, and, if they were kept away at the
// start, until every rule was calm once.
func (d decision) planAvoidance(findings []Finding) Avoidance {
	a := Avoidance{}
	var reasons []string
	for i := range d.policy.Rules {
		r := &d.policy.Rules[i]
		st := d.state.rules[r.Name]
		f := &findings[i]

		if r.Preview {
			continue
		}

		// After a start, a node stays avoided until each rule was evaluated once.
		end := st.lastFired.Add(r.Action.CoolDown)
		switch {
		case st.firing:
			reasons = append(reasons, fmt.Sprintf("rule %s is %s", r.Name, f.Phase))
		case !st.lastFired.IsZero() && d.observation.At.Before(end):
			reasons = append(reasons, fmt.Sprintf("rule %s cools down", r.Name))
			if end.After(a.Until) {
				a.Until = end
			}

		case d.observation.Node.Avoided && !st.evaluated:
			reasons = append(reasons, fmt.Sprintf("rule %s was not calm yet", r.Name))
		}
	}

	a.Desired = len(reasons) > 0
	a.Reason = strings.Join(reasons, ", ")
	if !a.Desired {
		a.Reason = "no rule has fired"
		a.Until = time.Time{}
	}

	a.Change = a.Desired != d.observation.Node.Avoided
	return a
}

// State is the memory between calls of Decide. It is not safe for concurrent use; the zero value is ready.
type State struct {
	rules       map[string]*ruleState
	quotas      throttleRecords[Quota]
	highs       throttleRecords[MemoryHigh]
	terminating map[string]*termination
	refused     map[string]time.Time // time of the refusal by pod UID
	evicted     []time.Time
	pause       evictionPause
	// lastProbe is the last time a limit was raised without a known headroom.
	lastProbe time.Time
	// detector is nil unless a rule uses interference.
	detector *detector
}

// RecordThrottle records that a throttle was executed.
func (s *State) RecordThrottle(t Throttle) {
	s.quotas.record(throttleRecord[Quota]{
		Pod:         t.Pod,
		ContainerID: t.ContainerID,
		Original:    t.Original,
		Set:         t.To,
		Before:      t.To + Quota(t.Freed),
		Step:        t.Step,
	})
}

// RecordMemoryThrottle records that a memory throttle was executed.
func (s *State) RecordMemoryThrottle(t MemoryThrottle) {
	s.highs.record(throttleRecord[MemoryHigh]{
		Pod:         t.Pod,
		ContainerID: t.ContainerID,
		Original:    t.Original,
		Set:         t.To,
		Before:      t.To + MemoryHigh(t.Freed),
	})
}

// BeginMemoryThrottle records that a memory throttle is being executed, which takes as long as the kernel reclaims. Until
// RecordMemoryThrottle the old or the new limit may be in force.
func (s *State) BeginMemoryThrottle(t MemoryThrottle) {
	if record := s.highs[t.ContainerID]; record != nil {
		record.pending = t.To
	}
}

// InheritQuota records a quota that a previous process set and the one before it. It stays unless the container requests more or a rule
// lowers it, until OwnInherited.
func (s *State) InheritQuota(containerID string, original, set Quota) {
	s.quotas.inherit(containerID, original, set)
}

// InheritMemoryHigh is InheritQuota for a memory limit.
func (s *State) InheritMemoryHigh(containerID string, original, set MemoryHigh) {
	s.highs.inherit(containerID, original, set)
}

// OwnInherited makes the inherited limits that are still in force ordinary ones, which are restored when the node is calm.
func (s *State) OwnInherited() {
	s.quotas.own()
	s.highs.own()
}

// IsThrottled reports whether this process throttles the CPU of a container.
func (s *State) IsThrottled(containerID string) bool { return s.quotas.isOwn(containerID) }

// IsMemoryThrottled reports whether this process throttles the memory of a container.
func (s *State) IsMemoryThrottled(containerID string) bool { return s.highs.isOwn(containerID) }

// reconcile compares the recorded actions with the observation.
func (s *State) reconcile(o *Observation, l Limits) {
	s.quotas.reconcile(o, cpuLimits())
	s.highs.reconcile(o, memoryLimits())
	s.reconcilePods(o, l)
}

// earlier returns t, or now if t is later because the clock was set back.
func earlier(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}

	return t
}
