// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/units"
)

// Interference describes a latency-sensitive pod that waits for a resource longer than usual, and the likely cause.
type Interference struct {
	Of units.Resource
	// Victim is the latency-sensitive pod; SensitiveReason is the reason it counts as one.
	Victim          PodRef
	SensitiveReason string
	// Wait is the share of time the pod waits, Median its median in calm times and Deviation their scatter.
	Wait, Median, Deviation units.Ratio
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
		return text + fmt.Sprintf("; %s uses %s, %s more than usual", i.Antagonist, formatAmount(i.Of, i.Usage), formatAmount(i.Of, i.Increase))
	}

	return text + fmt.Sprintf("; no pod's use rose with it, %s uses the most: %s", i.Antagonist, formatAmount(i.Of, i.Usage))
}

// orderVictims returns the candidates of a rule's action, the first victim first. Under interference, pods whose use rose come first, the
// largest increase first; if no use rose, the largest use comes first. The interfered pod and latency-sensitive pods of the same or higher
// priority are excluded.
func (d decision) orderVictims(r *Rule, criterion Criterion) []*Pod {
	metric := d.metric(r)
	// A latency-sensitive pod that waits for disks may suffer from the load instead of causing it.
	list := slices.DeleteFunc(orderedVictims(d.observation, r.Action.Name, criterion), func(p *Pod) bool {
		return !metric.includes(p) || criterion == ByDiskWait && p.SensitiveReason != ""
	})

	if above := d.podsAbove(r); len(above) > 0 {
		slices.SortStableFunc(list, func(a, b *Pod) int { return trueFirst(above[a.UID], above[b.UID]) })
	}

	v := d.interferedPod(r)
	if v == nil {
		return list
	}

	resource := interferenceResource(r.Metric)
	increases := make(map[string]float64, len(list))
	for _, p := range list {
		if rise := d.increase(p, resource, r); rise > 0 {
			increases[p.UID] = rise
		}
	}

	list = slices.DeleteFunc(list, func(p *Pod) bool {
		// Disks allow evictions only, and a pod with its usual use is not the cause.
		return p.UID == v.pod.UID || p.SensitiveReason != "" && p.Priority >= v.pod.Priority || resource == Disks && increases[p.UID] == 0
	})
	rose := slices.ContainsFunc(list, func(p *Pod) bool { return increases[p.UID] > 0 })

	slices.SortStableFunc(list, func(a, b *Pod) int {
		if rose {
			return cmp.Compare(increases[b.UID], increases[a.UID])
		}

		return cmp.Compare(b.knownUse(resource, d.observation.At, r.MaxAge), a.knownUse(resource, d.observation.At, r.MaxAge))
	})

	return list
}

// increase returns how much more than usual a pod uses of a resource; 0 if it is insignificant or the pod is terminating.
func (d decision) increase(p *Pod, resource units.Resource, r *Rule) float64 {
	rise := d.state.detector.increase(resourceIndex(resource), p, d.observation.At, r.MaxAge)
	if p.Terminating || rise < d.observation.minRise(resource, r.MaxAge) {
		return 0
	}

	return rise
}

// includes reports whether the pod contributes to the metric, so that acting on the pod can lower it.
func (m Metric) includes(p *Pod) bool {
	if m.HolderResource != NoResource {
		return p.holds(m.HolderResource)
	}

	return !m.elasticOnly || p.Elastic
}

// podsAbove returns the UIDs of pods above the rule's threshold; it is empty unless the metric measures the own use of each pod.
func (d decision) podsAbove(r *Rule) map[string]bool {
	if !d.metric(r).perPod {
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

// interferedPod returns the verdict on the pod that a rule on interference protects; nil for rules on other metrics.
func (d decision) interferedPod(r *Rule) *verdict {
	resource := interferenceResource(r.Metric)
	if resource == NoResource {
		return nil
	}

	if v := d.state.detector.worst(r, resource); v != nil && v.excess > 0 {
		return v
	}

	return nil
}

// describeInterference returns the interference of a rule on it and its likely cause, or why a longer wait is not interference; nil if no pod
// waits longer than usual.
func (d decision) describeInterference(r *Rule) *Interference {
	resource := interferenceResource(r.Metric)
	if resource == NoResource {
		return nil
	}

	v := d.state.detector.worst(r, resource)
	if v == nil || v.excess == 0 && v.ownCause == "" {
		return nil
	}

	i := &Interference{
		Of:              resource,
		Victim:          v.pod.ref(),
		SensitiveReason: v.pod.SensitiveReason,
		Wait:            units.Ratio(v.wait),
		Median:          units.Ratio(v.median),
		Deviation:       units.Ratio(v.deviation),
		OwnCause:        v.ownCause,
	}

	if v.excess == 0 {
		return i
	}

	// The likely cause is the first victim that uses the resource at all.
	for _, p := range d.orderVictims(r, d.metric(r).victimCriterion()) {
		if use := p.knownUse(resource, d.observation.At, r.MaxAge); use > 0 && !p.Terminating {
			i.Antagonist = p.ref()
			i.Usage = use
			i.Increase = d.increase(p, resource, r)
			break
		}
	}

	return i
}

// deriveInterference returns the observation with the interference metrics if a rule uses one of them.
func (s *State) deriveInterference(rules []Rule, o *Observation) *Observation {
	var age time.Duration
	for i := range rules {
		if r := &rules[i]; interferenceResource(r.Metric) != NoResource {
			age = max(age, r.MaxAge)
		}
	}

	// Without a rule on interference nothing is learned and the detector is dropped.
	if age == 0 {
		if s.detector.expired(o.At) {
			s.detector = nil
		}

		return o
	}

	if s.detector == nil {
		s.detector = &detector{}
	}

	s.detector.restored = false
	s.detector.update(o, age)

	derived := *o
	derived.derived = map[string]derivedMetric{}
	for i := range rules {
		if resource := interferenceResource(rules[i].Metric); resource != NoResource {
			var found derivedMetric
			found.samples, found.reason = s.detector.samples(resource)
			derived.derived[rules[i].Metric] = found
		}
	}

	return &derived
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
func (d decision) restoreDelayed(r *Rule) bool {
	st := d.state.rules[r.Name]
	if interferenceResource(r.Metric) == NoResource || st.lastFired.IsZero() {
		return false
	}

	return d.observation.At.Before(st.lastFired.Add(st.restoreDelay(r))) || absolute(d.observation.At.Sub(d.state.lastProbe)) < st.metric.Settle
}
