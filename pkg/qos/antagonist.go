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

// Interference is what is known of a pod that waits more than usual.
type Interference struct {
	Of Resource
	// Victim is the latency-sensitive pod, Sensitive why it is one.
	Victim          PodRef
	SensitiveReason string
	// Wait is the share of time that it waits, Usual its median in calm times, Deviation how far these scatter.
	Wait, Median, Deviation series.Ratio
	// Antagonist is who is likely to be the cause, of those that the rule's action may be taken on; empty where nobody is. Rise is how much
	// more than usual it uses, Uses how much, in millicores, bytes or DiskWork.
	Antagonist      PodRef
	Increase, Usage float64
	// OwnCause says why it is no interference; empty where it is.
	OwnCause string
}

// String says it with its numbers.
func (i Interference) String() string {
	text := fmt.Sprintf("%s (%s) waits %.1f %% of the time for %s, usually %.1f %% ± %.1f %%", i.Victim, i.SensitiveReason, 100*i.Wait, i.Of, 100*i.Median, 100*i.Deviation)
	switch {
	case i.OwnCause != "":
		return text + "; no interference: " + i.OwnCause
	case i.Antagonist == PodRef{}:
		return text + "; no pod that may be touched can be the cause"
	case i.Increase > 0:
		return text + fmt.Sprintf("; %s uses %s, %s more than usual", i.Antagonist, i.Of.format(i.Usage), i.Of.format(i.Increase))
	}
	return text + fmt.Sprintf("; nobody's use rose with it, %s uses the most: %s", i.Antagonist, i.Of.format(i.Usage))
}

// orderVictims are those of a rule's action. Where a pod is interfered with, those whose use rose with it come first, most of it first; where
// nobody's did, who uses the most does. The pod itself, and latency-sensitive pods that are as important, are none of them.
func (d *decision) orderVictims(r *Rule, f *Finding, by Criterion) []*Pod {
	list := orderedVictims(d.observation, r.Action.Name, by)
	if by == ByDiskWait {
		// Who waits may be the cause or who suffers from it.
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
		// What can be done is to evict, and who does no more than usual is not the cause.
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

// includes tells whether a pod is a part of what a rule's metric counts, so that something taken from it can lower that.
func (m Metric) includes(p *Pod) bool {
	if m.HolderResource != NoResource {
		return p.holds(m.HolderResource)
	}
	return !m.elasticOnly || p.Elastic
}

// podsAbove are the pods that are above a rule's value, by UID; none where its metric is not what each pod uses itself.
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

// labelPod is the label that says of which pod a series is, by its UID.
const labelPod = "PodUid"

// podUse is what a pod uses of a resource, 0 where it is not known.
func (d *decision) podUse(p *Pod, of Resource, r *Rule) float64 {
	if use, ok := p.use(of, d.observation.At, r.MaxAge); ok {
		return use
	}
	return 0
}

// interferedPod is the pod for whose sake a rule fires, nil for rules on other metrics.
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

// explainInterference says of a rule on interference who is interfered with, or why nobody is who seems to be.
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

// detectInterference finds out who is interfered with, where a rule asks for it.
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

// appendCause adds to what is done for a pod that is interfered with for whom it is and why.
func (d *decision) appendCause(f *Finding, throttles []Throttle, memory []MemoryThrottle, evictions []Eviction) {
	if f.Interference == nil {
		return
	}
	if f.Withheld == WithheldNoCandidate && f.Interference.Antagonist == (PodRef{}) {
		f.withhold(WithheldNoCandidate, "nobody to evict: "+f.Interference.String())
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
	// maxRefires doubles a cool-down of five minutes to more than an hour, which is maxRestoreDelay.
	maxRefires      = 4
	maxRestoreDelay = time.Hour
)

// restoreDelay is how long what was taken for the sake of a pod that waits is kept after a rule has fired: the cool-down, twice as long each
// time that the rule has fired again soon after it was given back, up to an hour.
func (st *ruleState) restoreDelay(r *Rule) time.Duration {
	if r.Action.CoolDown >= maxRestoreDelay {
		return r.Action.CoolDown // The longest there is would overflow.
	}
	return min(r.Action.CoolDown<<st.refires, maxRestoreDelay)
}

// countRefires counts that a rule fires: once more where what was taken was given back just before.
func (st *ruleState) countRefires(r *Rule, now time.Time) int {
	if st.lastFired.IsZero() || now.Sub(st.lastFired) > 2*st.restoreDelay(r) {
		return 0
	}
	return min(st.refires+1, maxRefires)
}

// restoreDelayed tells that what was taken for the sake of a pod is not to be given back yet: whoever was the cause would be it again, so that it
// gets it back when the cool-down is over, and not as soon as the pod is calm; and then a step at a time, of which each can be seen.
func (d *decision) restoreDelayed(r *Rule) bool {
	st := d.state.rules[r.Name]
	if interferenceResource(r.Metric) == NoResource || st.lastFired.IsZero() {
		return false
	}
	return d.observation.At.Before(st.lastFired.Add(st.restoreDelay(r))) || absolute(d.observation.At.Sub(d.state.lastProbe)) < st.metric.Settle
}
