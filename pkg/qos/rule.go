// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"time"
)

// ruleState is the state of a rule between measurements.
type ruleState struct {
	metric      Metric
	metricKnown bool // the metric exists

	breaches, calm int
	firing         bool
	evaluated      bool      // was calm often enough, or fired, once
	sampled        time.Time // time of the last counted measurement
	lastFired      time.Time
	unknownSince   time.Time
	// refires is the number of times it fired again soon after it ended.
	refires int
	// reclaimingSince is when its evictions began to wait for page cache; zero if they did not since it began to fire.
	reclaimingSince time.Time
}

// evaluate updates the state with the rule's metric. breaching reports that a new measurement is above the threshold while the rule fires:
// only then actions are planned.
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

// countMeasurement counts consecutive measurements above, or not above, the threshold.
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

// markUnknown resets the counts. A rule that fired keeps its actions for a while and then ends.
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

// measure returns the highest usable value of the selected series, or why there is none.
func (st *ruleState) measure(r *Rule, o *Observation) (value float64, at time.Time, why string) {
	if !st.metricKnown {
		return 0, at, "unknown metric"
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

// holdFor returns how long the actions of a rule stay while its metric is unknown.
func holdFor(r *Rule, l Limits) time.Duration { return max(l.UnknownHold, r.Action.CoolDown) }
