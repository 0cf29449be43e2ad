// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// decision holds the inputs and intermediate results of one call of Decide.
type decision struct {
	policy      *Policy
	observation *Observation
	state       *State
	plan        *Plan
	findings    []Finding
	// changed lists the limits the plan changes, evicting the pods it evicts, and planned what both release.
	changed  map[limitKey]bool
	evicting map[string]bool
	planned  map[Resource]float64
}

// Decide returns a plan and updates the state with the observation. The caller records executed actions in the state (RecordThrottle,
// RecordEviction, RecordRefusal); a dry run records none.
func Decide(policy *Policy, o *Observation, s *State) Plan {
	d := &decision{
		policy: policy, observation: o, state: s, plan: &Plan{At: o.At}, findings: make([]Finding, len(policy.Rules)),
		changed: map[limitKey]bool{}, evicting: map[string]bool{}, planned: map[Resource]float64{},
	}
	s.reconcile(o, policy.Limits)
	d.detectInterference()
	breaching := d.evaluateRules()
	for i := range policy.Rules {
		if !breaching[i] {
			continue
		}
		r, f := &policy.Rules[i], &d.findings[i]
		if r.Preview {
			t, m, e := d.planRule(r, f)
			d.appendCause(f, t, m, e)
			d.plan.Previews = append(d.plan.Previews, Preview{Rule: r.Name, Throttles: t, MemoryThrottles: m, Evictions: e})
			continue
		}
		t, m, e := d.planRule(r, f)
		d.appendCause(f, t, m, e)
		d.addToPlan(t, m, e)
	}
	d.plan.Throttles = append(d.plan.Throttles, d.planCPURestore()...)
	d.plan.MemoryThrottles = append(d.plan.MemoryThrottles, d.planMemoryRestore()...)
	d.plan.Avoid = d.planAvoidance()
	d.plan.Rules = d.findings
	return *d.plan
}

// evaluateRules evaluates every rule and drops the state of removed rules.
func (d *decision) evaluateRules() []bool {
	breaching := make([]bool, len(d.policy.Rules))
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
		d.findings[i], breaching[i] = st.evaluate(r, d.observation, d.policy.Limits)
	}
	d.state.rules = states
	for i := range d.policy.Rules {
		d.explainInterference(&d.policy.Rules[i], &d.findings[i])
	}
	return breaching
}

// planRule plans the actions of a firing rule after those of the rules before it.
func (d *decision) planRule(r *Rule, f *Finding) (throttles []Throttle, memory []MemoryThrottle, evictions []Eviction) {
	gap, quantified, why := d.computeGap(r, f)
	if notUsage(r.Metric) {
		why = "nothing is throttled and no pod evicted: the metric does not measure the use of pods"
	}
	if why != "" {
		f.Reason = why
		return nil, nil, nil
	}
	if quantified && gap <= 0 {
		f.Reason = "pending releases close the gap"
		return nil, nil, nil
	}
	if r.throttles(CPU) {
		// The throttled CPU does not predict the memory use.
		throttles = d.planThrottles(r, f, gap, quantified && f.Resource == CPU)
	}
	memory = d.planMemoryThrottles(r, f, gap, quantified)
	if r.Action.Evict != nil && !d.deferEvictions(r, f, throttles, memory) {
		f.Reason = ""
		if why := d.belowWaterMark(r, f); why != "" {
			f.withhold(WithheldByWaterMark, why)
		} else {
			evictions = d.planEvictions(r, f, d.capAtWaterMark(f, gap), quantified)
		}
	}
	return throttles, memory, evictions
}

// computeGap returns the amount to release; quantified reports whether the metric determines it.
func (d *decision) computeGap(r *Rule, f *Finding) (gap float64, quantified bool, why string) {
	metric := d.state.rules[r.Name].metric
	if metric.Resource == NoResource {
		return 0, false, ""
	}
	excess, ok := metric.toAmount(f.Value-r.Threshold, d.observation.Node)
	if !ok {
		return 0, true, "the capacity of the node is unknown"
	}
	f.Gap = excess * (1 + float64(d.policy.Limits.Excess))
	f.PendingRelease = d.state.pendingRelease(f.Resource, d.observation.At, d.policy.Limits) + d.planned[f.Resource]
	return f.Gap - f.PendingRelease, true, ""
}

// belowWaterMark returns why a water mark forbids evictions; empty if it does not.
func (d *decision) belowWaterMark(r *Rule, f *Finding) string {
	mark, ok := d.policy.WaterMarks[f.Resource]
	if !ok || f.Resource == NoResource {
		return ""
	}
	used, known := d.observation.Node.used(f.Resource, d.observation.At, r.MaxAge)
	switch {
	case !known:
		return fmt.Sprintf("no pod is evicted: the use of %s is unknown, and its water mark is %.0f %%", f.Resource, 100*mark)
	case used <= mark:
		return fmt.Sprintf("no pod is evicted: %.1f %% of %s is used, the water mark is %.0f %%", 100*used, f.Resource, 100*mark)
	}
	return ""
}

// capAtWaterMark limits a gap to the part above the water mark, below which no pod is evicted.
func (d *decision) capAtWaterMark(f *Finding, gap float64) float64 {
	mark, ok := d.policy.WaterMarks[f.Resource]
	if !ok || f.Resource == NoResource {
		return gap
	}
	capacity := d.observation.Node.capacity(f.Resource)
	used, _ := d.observation.Node.used(f.Resource, d.observation.At, time.Duration(1<<62))
	return min(gap, float64(used-mark)*capacity*(1+float64(d.policy.Limits.Excess))-f.PendingRelease)
}

// addToPlan adds the actions of a rule to the plan.
func (d *decision) addToPlan(throttles []Throttle, memory []MemoryThrottle, evictions []Eviction) {
	for _, t := range memory {
		// Reclaimable page cache already counts as available memory and closes no gap.
		d.changed[limitKey{Memory, t.ContainerID}] = true
	}
	d.plan.MemoryThrottles = append(d.plan.MemoryThrottles, memory...)
	for _, t := range throttles {
		d.changed[limitKey{CPU, t.ContainerID}] = true
		d.planned[CPU] += float64(t.Freed)
	}
	for _, e := range evictions {
		d.evicting[e.Pod.UID] = true
		d.countFreed(e.Pod.UID)
	}
	d.plan.Throttles = append(d.plan.Throttles, throttles...)
	d.plan.Evictions = append(d.plan.Evictions, evictions...)
}

// countFreed adds the CPU and memory that the eviction of a pod releases.
func (d *decision) countFreed(uid string) {
	i := slices.IndexFunc(d.observation.Pods, func(p Pod) bool { return p.UID == uid })
	if i < 0 {
		return
	}
	d.planned[CPU] += float64(max(d.observation.Pods[i].UsedCPU.Value, 0))
	d.planned[Memory] += float64(max(d.observation.Pods[i].UsedMemory.Value, 0))
}

// planAvoidance decides whether new pods are kept away: while a rule fires, during its cool-down, and, if they were kept away at the
// start, until every rule was calm once.
func (d *decision) planAvoidance() Avoidance {
	a := Avoidance{}
	var reasons []string
	for i := range d.policy.Rules {
		r, st, f := &d.policy.Rules[i], d.state.rules[d.policy.Rules[i].Name], &d.findings[i]
		if r.Preview {
			continue
		}
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
	a.Desired, a.Reason = len(reasons) > 0, strings.Join(reasons, ", ")
	if !a.Desired {
		a.Reason, a.Until = "no rule has fired", time.Time{}
	}
	a.Change = a.Desired != d.observation.Node.Avoided
	return a
}
