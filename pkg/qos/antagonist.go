// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

// Interference describes a latency-sensitive pod that waits for a resource longer than usual, and the likely cause.
type Interference struct {
	Of Resource
	// Victim is the latency-sensitive pod; SensitiveReason is the reason it counts as one.
	Victim          PodRef
	SensitiveReason string
	// Wait is the share of time the pod waits, Median its median in calm times and Deviation their scatter.
	Wait, Median, Deviation series.Ratio
	// Antagonist is the likely cause among the pods the rule's action may be taken on; it is empty where there is none. Increase is the
	// excess of its use over its usual use, Usage its use, both in millicores, bytes or DiskWork.
	Antagonist      PodRef
	Increase, Usage float64
	// OwnCause explains why the wait is not interference; it is empty for interference.
	OwnCause string
}

// String describes the interference with its numbers.
func (i Interference) String() string {
	text := fmt.Sprintf("%s (%s) waits %.1f %% of the time for %s, usually %.1f %% ± %.1f %%", i.Victim, i.SensitiveReason, 100*i.Wait, i.Of, 100*i.Median, 100*i.Deviation)
	switch {
	case i.OwnCause != "":
		return text + "; no interference: " + i.OwnCause
	case i.Antagonist == PodRef{}:
		return text + "; no permitted pod can be the cause"
	case i.Increase > 0:
		return text + fmt.Sprintf("; %s uses %s, %s more than usual", i.Antagonist, i.Of.format(i.Usage), i.Of.format(i.Increase))
	}
	return text + fmt.Sprintf("; no pod's use rose with it, %s uses the most: %s", i.Antagonist, i.Of.format(i.Usage))
}

// orderVictims returns the candidates of a rule's action, the first victim first. Under interference, pods whose use rose come first, the
// largest increase first; if no use rose, the largest use comes first. The interfered pod and latency-sensitive pods of the same or higher
// priority are excluded.
func (d *decision) orderVictims(r *Rule, f *Finding, by Criterion) []*Pod {
	list := orderedVictims(d.observation, r.Action.Name, by)
	if by == ByDiskWait {
		// A latency-sensitive pod that waits may suffer from the load instead of causing it.
		list = slices.DeleteFunc(list, func(p *Pod) bool { return p.SensitiveReason != "" })
	}
	list = slices.DeleteFunc(list, func(p *Pod) bool { return !d.state.rules[r.Name].metric.includes(p) })
	if above := d.podsAbove(r); len(above) > 0 {
		slices.SortStableFunc(list, func(a, b *Pod) int { return trueFirst(above[a.UID], above[b.UID]) })
	}
	v := d.interferedPod(r)
	if v == nil {
		return list
	}
	of := interferenceResource(r.Metric)
	list = slices.DeleteFunc(list, func(p *Pod) bool {
		return p.UID == v.pod.UID || p.SensitiveReason != "" && p.Priority >= v.pod.Priority
	})
	least := d.observation.minRise(of, r.MaxAge)
	rise := make(map[string]float64, len(list))
	anybody := false
	for _, p := range list {
		if by := d.state.detector.increase(of.index(), p, d.observation.At, r.MaxAge); by >= least && !p.Terminating {
			rise[p.UID], anybody = by, true
		}
	}
	if of == Disks {
		// Disks allow evictions only, and a pod with its usual use is not the cause.
		list = slices.DeleteFunc(list, func(p *Pod) bool { return rise[p.UID] == 0 })
	}
	slices.SortStableFunc(list, func(a, b *Pod) int {
		if anybody {
			return cmp.Compare(rise[b.UID], rise[a.UID])
		}
		return cmp.Compare(d.podUse(b, of, r), d.podUse(a, of, r))
	})
	if f.Interference == nil {
		return list
	}
	if i := slices.IndexFunc(list, func(p *Pod) bool { return !p.Terminating && d.podUse(p, of, r) > 0 }); i >= 0 {
		p := list[i]
		f.Interference.Antagonist, f.Interference.Increase, f.Interference.Usage = p.ref(), rise[p.UID], d.podUse(p, of, r)
	}
	return list
}

// includes reports whether the pod contributes to the metric, so that acting on the pod can lower it.
func (m Metric) includes(p *Pod) bool {
	if m.HolderResource != NoResource {
		return p.holds(m.HolderResource)
	}
	return !m.elasticOnly || p.Elastic
}

// podsAbove returns the UIDs of pods above the rule's threshold; it is empty unless the metric measures the own use of each pod.
func (d *decision) podsAbove(r *Rule) map[string]bool {
	if !d.state.rules[r.Name].metric.perPod {
		return nil
	}
	out := map[string]bool{}
	samples, _ := d.observation.samples(r.Metric)
	for _, s := range samples {
		if s.Value > r.Threshold && s.fresh(d.observation.At, r.MaxAge) && (r.Matches == nil || r.Matches(s.Labels)) {
			out[s.Labels[labelPod]] = true
		}
	}
	return out
}

// labelPod is the series label with the pod's UID.
const labelPod = "PodUid"

// podUse returns the pod's use of a resource; 0 if it is unknown.
func (d *decision) podUse(p *Pod, of Resource, r *Rule) float64 {
	if use, ok := p.use(of, d.observation.At, r.MaxAge); ok {
		return use
	}
	return 0
}

// interferedPod returns the verdict on the pod that a rule on interference protects; nil for rules on other metrics.
func (d *decision) interferedPod(r *Rule) *verdict {
	of := interferenceResource(r.Metric)
	if of == NoResource {
		return nil
	}
	if v := d.state.detector.worst(r, of); v != nil && v.excess > 0 {
		return v
	}
	return nil
}

// explainInterference adds to a finding which pod is interfered with, or why a longer wait is not interference.
func (d *decision) explainInterference(r *Rule, f *Finding) {
	of := interferenceResource(r.Metric)
	if of == NoResource {
		return
	}
	v := d.state.detector.worst(r, of)
	if v == nil || v.excess == 0 && v.ownCause == "" {
		return
	}
	f.Interference = &Interference{
		Of: of, Victim: v.pod.ref(), SensitiveReason: v.pod.SensitiveReason, Wait: series.Ratio(v.wait), Median: series.Ratio(v.median),
		Deviation: series.Ratio(v.deviation), OwnCause: v.ownCause,
	}
	d.orderVictims(r, f, d.state.rules[r.Name].metric.victimCriterion())
	if f.Reason == "" {
		f.Reason = f.Interference.String()
	}
}

// detectInterference derives the interference metrics if a rule uses one of them.
func (d *decision) detectInterference() {
	var age time.Duration
	for i := range d.policy.Rules {
		if r := &d.policy.Rules[i]; interferenceResource(r.Metric) != NoResource {
			age = max(age, r.MaxAge)
		}
	}
	if age == 0 {
		if d.state.detector.expired(d.observation.At) {
			d.state.detector = nil
		}
		return
	}
	if d.state.detector == nil {
		d.state.detector = &detector{}
	}
	d.state.detector.restored = false
	d.state.detector.update(d.observation, age)
	with := *d.observation
	with.derived = map[string]derivedMetric{}
	for i := range d.policy.Rules {
		metric := d.policy.Rules[i].Metric
		if of := interferenceResource(metric); of != NoResource {
			var found derivedMetric
			found.samples, found.reason = d.state.detector.samples(of)
			with.derived[metric] = found
		}
	}
	d.observation = &with
}

// appendCause adds the description of the interference to the reasons of the actions taken against it.
func (d *decision) appendCause(f *Finding, throttles []Throttle, memory []MemoryThrottle, evictions []Eviction) {
	if f.Interference == nil {
		return
	}
	if f.Withheld == WithheldNoCandidate && f.Interference.Antagonist == (PodRef{}) {
		f.withhold(WithheldNoCandidate, "no pod to evict: "+f.Interference.String())
	}
	for i := range throttles {
		throttles[i].Reason += "; " + f.Interference.String()
	}
	for i := range memory {
		memory[i].Reason += "; " + f.Interference.String()
	}
	for i := range evictions {
		evictions[i].Reason += "; " + f.Interference.String()
	}
}

const (
	// maxRefires is the number of doublings that takes a cool-down of five minutes beyond maxRestoreDelay.
	maxRefires      = 4
	maxRestoreDelay = time.Hour
)

// restoreDelay returns how long throttles against interference stay after the rule last fired: the cool-down, doubled each time the rule
// fired again soon after a restore, and at most an hour.
func (st *ruleState) restoreDelay(r *Rule) time.Duration {
	if r.Action.CoolDown >= maxRestoreDelay {
		return r.Action.CoolDown // Doubling the longest duration would overflow.
	}
	return min(r.Action.CoolDown<<st.refires, maxRestoreDelay)
}

// countRefires returns the number of times the rule fired again soon after a restore.
func (st *ruleState) countRefires(r *Rule, now time.Time) int {
	if st.lastFired.IsZero() || now.Sub(st.lastFired) > 2*st.restoreDelay(r) {
		return 0
	}
	return min(st.refires+1, maxRefires)
}

// restoreDelayed reports whether throttles against interference stay for now: the cause would return with the resource, so it is restored
// after the delay rather than as soon as the victim is calm, and one observable step at a time.
func (d *decision) restoreDelayed(r *Rule) bool {
	st := d.state.rules[r.Name]
	if interferenceResource(r.Metric) == NoResource || st.lastFired.IsZero() {
		return false
	}
	return d.observation.At.Before(st.lastFired.Add(st.restoreDelay(r))) || absolute(d.observation.At.Sub(d.state.lastProbe)) < st.metric.Settle
}
