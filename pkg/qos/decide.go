// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// decision is what one call of Decide works with.
type decision struct {
	policy   *Policy
	o        *Observation
	s        *State
	plan     *Plan
	findings []Finding
	// changed are the limits that the plan changes, evicting the pods that it evicts, and planned what both free.
	changed  map[aLimit]bool
	evicting map[string]bool
	planned  map[Resource]float64
}

// Decide makes a plan. It brings the state up to date with the observation; what is then done of the plan is told to the state by whoever
// does it (Throttled, Evicted, Refused), so that a dry run tells nothing.
func Decide(policy *Policy, o *Observation, s *State) Plan {
	d := &decision{
		policy: policy, o: o, s: s, plan: &Plan{At: o.At}, findings: make([]Finding, len(policy.Rules)),
		changed: map[aLimit]bool{}, evicting: map[string]bool{}, planned: map[Resource]float64{},
	}
	s.catchUp(o, policy.Limits)
	d.detect()
	breaching := d.look()
	for i := range policy.Rules {
		if !breaching[i] {
			continue
		}
		r, f := &policy.Rules[i], &d.findings[i]
		if r.Preview {
			t, m, e := d.act(r, f)
			d.blame(f, t, m, e)
			d.plan.Previews = append(d.plan.Previews, Preview{Rule: r.Name, Throttles: t, MemoryThrottles: m, Evictions: e})
			continue
		}
		t, m, e := d.act(r, f)
		d.blame(f, t, m, e)
		d.commit(t, m, e)
	}
	d.plan.Throttles = append(d.plan.Throttles, d.restore()...)
	d.plan.MemoryThrottles = append(d.plan.MemoryThrottles, d.restoreMemory()...)
	d.plan.Avoid = d.avoid()
	d.plan.Rules = d.findings
	return *d.plan
}

// look judges every rule and forgets those that are no more.
func (d *decision) look() []bool {
	breaching := make([]bool, len(d.policy.Rules))
	states := make(map[string]*ruleState, len(d.policy.Rules))
	for i := range d.policy.Rules {
		r := &d.policy.Rules[i]
		st := d.s.rules[r.Name]
		if st == nil || st.metric.Name != r.Metric {
			st = &ruleState{}
			st.metric, st.known = Lookup(r.Metric)
			st.metric.Name = r.Metric // Also where there is none of that name, until somebody corrects it.
		}
		states[r.Name] = st
		d.findings[i], breaching[i] = st.look(r, d.o, d.policy.Limits)
	}
	d.s.rules = states
	for i := range d.policy.Rules {
		d.explain(&d.policy.Rules[i], &d.findings[i])
	}
	return breaching
}

// act plans what a rule that fires does, after what others have planned before it.
func (d *decision) act(r *Rule, f *Finding) (throttles []Throttle, memory []MemoryThrottle, evictions []Eviction) {
	gap, quantified, why := d.gap(r, f)
	if given(r.Metric) {
		why = "nothing is taken and nobody evicted: what the metric says is not what pods use"
	}
	if why != "" {
		f.Why = why
		return nil, nil, nil
	}
	if quantified && gap <= 0 {
		f.Why = "what is about to go closes the gap"
		return nil, nil, nil
	}
	if r.takes(CPU) {
		// Taking cpu says nothing of how much memory will be used.
		throttles = d.throttle(r, f, gap, quantified && f.Of == CPU)
	}
	memory = d.throttleMemory(r, f, gap, quantified)
	if r.Action.Evict != nil && !d.waits(r, f, throttles, memory) {
		f.Why = ""
		if why := d.unmarked(r, f); why != "" {
			f.withhold(ByWaterMark, why)
		} else {
			evictions = d.evict(r, f, d.aboveMark(f, gap), quantified)
		}
	}
	return throttles, memory, evictions
}

// gap is how much has to go, quantified tells that the metric says so.
func (d *decision) gap(r *Rule, f *Finding) (gap float64, quantified bool, why string) {
	metric := d.s.rules[r.Name].metric
	if metric.Of == None {
		return 0, false, ""
	}
	excess, ok := metric.amountOf(f.Value-r.Above, d.o.Node)
	if !ok {
		return 0, true, "how much the node has is not known"
	}
	f.Gap = excess * (1 + float64(d.policy.Limits.Excess))
	f.Going = d.s.going(f.Of, d.o.At, d.policy.Limits) + d.planned[f.Of]
	return f.Gap - f.Going, true, ""
}

// unmarked says why a water mark forbids an eviction, empty where it does not.
func (d *decision) unmarked(r *Rule, f *Finding) string {
	mark, ok := d.policy.Marks[f.Of]
	if !ok || f.Of == None {
		return ""
	}
	used, known := d.o.Node.used(f.Of, d.o.At, r.MaxAge)
	switch {
	case !known:
		return fmt.Sprintf("nobody is evicted: the use of %s is not known, and it has the water mark %.0f %%", f.Of, 100*mark)
	case used <= mark:
		return fmt.Sprintf("nobody is evicted: %.1f %% of %s are used, the water mark is %.0f %%", 100*used, f.Of, 100*mark)
	}
	return ""
}

// aboveMark is the part of a gap that is above the water mark: below it nobody is evicted.
func (d *decision) aboveMark(f *Finding, gap float64) float64 {
	mark, ok := d.policy.Marks[f.Of]
	if !ok || f.Of == None {
		return gap
	}
	capacity := d.o.Node.capacity(f.Of)
	used, _ := d.o.Node.used(f.Of, d.o.At, time.Duration(1<<62))
	return min(gap, float64(used-mark)*capacity*(1+float64(d.policy.Limits.Excess))-f.Going)
}

// commit takes what a rule does into the plan.
func (d *decision) commit(throttles []Throttle, memory []MemoryThrottle, evictions []Eviction) {
	for _, t := range memory {
		// What is dropped counts as free memory already, since it can be had back: it closes no gap.
		d.changed[aLimit{Memory, t.ContainerID}] = true
	}
	d.plan.MemoryThrottles = append(d.plan.MemoryThrottles, memory...)
	for _, t := range throttles {
		d.changed[aLimit{CPU, t.ContainerID}] = true
		d.planned[CPU] += float64(t.Frees)
	}
	for _, e := range evictions {
		d.evicting[e.Pod.UID] = true
		d.leaves(e.Pod.UID)
	}
	d.plan.Throttles = append(d.plan.Throttles, throttles...)
	d.plan.Evictions = append(d.plan.Evictions, evictions...)
}

// leaves counts what a pod that is evicted frees: of both resources, whichever the rule is about.
func (d *decision) leaves(uid string) {
	i := slices.IndexFunc(d.o.Pods, func(p Pod) bool { return p.UID == uid })
	if i < 0 {
		return
	}
	d.planned[CPU] += float64(max(d.o.Pods[i].UsedCPU.Value, 0))
	d.planned[Memory] += float64(max(d.o.Pods[i].UsedMemory.Value, 0))
}

// avoid decides whether new pods are kept away: while a rule has fired and has not ended, for its cool-down after that, and, where it was
// so at the start, until every rule has been seen calm.
func (d *decision) avoid() Avoidance {
	a := Avoidance{}
	var reasons []string
	for i := range d.policy.Rules {
		r, st, f := &d.policy.Rules[i], d.s.rules[d.policy.Rules[i].Name], &d.findings[i]
		if r.Preview {
			continue
		}
		end := st.lastFired.Add(r.Action.CoolDown)
		switch {
		case st.firing:
			reasons = append(reasons, fmt.Sprintf("rule %s is %s", r.Name, f.Phase))
		case !st.lastFired.IsZero() && d.o.At.Before(end):
			reasons = append(reasons, fmt.Sprintf("rule %s cools down", r.Name))
			if end.After(a.Until) {
				a.Until = end
			}
		case d.o.Node.Avoided && !st.judged:
			reasons = append(reasons, fmt.Sprintf("rule %s is not yet known to be calm", r.Name))
		}
	}
	a.Wanted, a.Why = len(reasons) > 0, strings.Join(reasons, ", ")
	if !a.Wanted {
		a.Why, a.Until = "no rule has fired", time.Time{}
	}
	a.Change = a.Wanted != d.o.Node.Avoided
	return a
}
