// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"time"
)

// ruleState is what a rule remembers.
type ruleState struct {
	metric      Metric
	metricKnown bool // there is such a metric

	breaches, calm int
	firing         bool
	evaluated      bool      // has said once, often enough, that it is calm, or has fired
	sampled        time.Time // of the last measurement that counted
	lastFired      time.Time
	unknownSince   time.Time
	// refires is how often it has fired again soon after it had ended.
	refires int
	// reclaimingSince is since when evictions have waited for files that are dropped; zero where they have not since it began to fire.
	reclaimingSince time.Time
}

// evaluate takes the rule's metric into account. breaching tells that this measurement is new and above the threshold, and that the rule
// fires: only then is something taken.
func (st *ruleState) evaluate(r *Rule, o *Observation, l Limits) (f Finding, breaching bool) {
	f = Finding{Rule: r.Name, Action: r.Action.Name, Threshold: r.Threshold, Unit: st.metric.Unit, Resource: st.metric.Resource, Preview: r.Preview}
	st.sampled, st.lastFired = earlier(st.sampled, o.At), earlier(st.lastFired, o.At)
	value, at, why := st.measure(r, o)
	if why != "" {
		st.markUnknown(r, o.At, l, &f)
		f.Reason = why
		return f, false
	}
	st.unknownSince = time.Time{}
	f.Value = value
	fresh := at.After(st.sampled)
	if fresh {
		st.sampled = at
		st.countMeasurement(r, value > r.Threshold, o.At)
	}
	switch {
	case value > r.Threshold && st.firing:
		f.Phase, f.Count, f.Needed = Firing, st.breaches, r.TriggerCount
		if !fresh {
			f.Reason = "the same measurement as before"
		}
	case value > r.Threshold:
		f.Phase, f.Count, f.Needed = Rising, st.breaches, r.TriggerCount
	case st.firing:
		f.Phase, f.Count, f.Needed = Falling, st.calm, r.RestoreCount
	default:
		f.Phase, f.Count, f.Needed = Calm, st.calm, r.RestoreCount
	}
	return f, fresh && f.Phase == Firing
}

// countMeasurement adds a measurement. Thresholds are of measurements in a row: one that is not above ends the row, and so does one that is.
func (st *ruleState) countMeasurement(r *Rule, above bool, now time.Time) {
	if above {
		st.calm = 0
		st.breaches = min(st.breaches+1, r.TriggerCount)
		if st.breaches >= r.TriggerCount {
			if !st.firing {
				st.refires, st.reclaimingSince = st.countRefires(r, now), time.Time{}
			}
			st.firing, st.evaluated, st.lastFired = true, true, now
		}
		return
	}
	st.breaches = 0
	st.calm = min(st.calm+1, r.RestoreCount)
	if st.calm >= r.RestoreCount {
		st.firing, st.evaluated = false, true
	}
}

// markUnknown ends a row of measurements. What has fired holds what it did for a while, and then ends.
func (st *ruleState) markUnknown(r *Rule, now time.Time, l Limits, f *Finding) {
	st.breaches, st.calm = 0, 0
	if st.unknownSince.IsZero() || st.unknownSince.After(now) {
		st.unknownSince = now
	}
	if now.Sub(st.unknownSince) >= holdFor(r, l) {
		st.firing, st.evaluated = false, true
	}
	f.Phase = Unknown
	if st.firing {
		f.Phase = Held
	}
}

// measure returns the highest of the selected series that counts, or why there is none.
func (st *ruleState) measure(r *Rule, o *Observation) (value float64, at time.Time, why string) {
	if !st.metricKnown {
		return 0, at, "there is no metric of this name"
	}
	samples, why := o.samples(r.Metric)
	if len(samples) == 0 {
		return 0, at, why
	}
	selected, counted := 0, 0
	for _, s := range samples {
		if r.Matches != nil && !r.Matches(s.Labels) {
			continue
		}
		selected++
		if !s.fresh(o.At, r.MaxAge) {
			continue
		}
		if counted == 0 || s.Value > value {
			value = s.Value
		}
		if s.At.After(at) {
			at = s.At
		}
		counted++
	}
	switch {
	case selected == 0:
		return 0, at, "no series has the selected labels"
	case counted == 0:
		return 0, at, fmt.Sprintf("no measurement of the last %s is a number", r.MaxAge)
	}
	return value, at, ""
}

// holdFor is how long what a rule did stays while its metric is unknown.
func holdFor(r *Rule, l Limits) time.Duration { return max(l.UnknownHold, r.Action.CoolDown) }
