// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"time"
)

// ruleState is what a rule remembers.
type ruleState struct {
	metric Metric
	known  bool // there is such a metric

	breaches, calm int
	firing         bool
	judged         bool      // has said once, often enough, that it is calm, or has fired
	sampled        time.Time // of the last measurement that counted
	lastFired      time.Time
	unknownSince   time.Time
	// repeats is how often it has fired again soon after it had ended.
	repeats int
	// dropping is since when evictions have waited for files that are dropped; zero where they have not since it began to fire.
	dropping time.Time
}

// look takes the rule's metric into account. breaching tells that this measurement is new and above the threshold, and that the rule
// fires: only then is something taken.
func (st *ruleState) look(r *Rule, o *Observation, l Limits) (f Finding, breaching bool) {
	f = Finding{Rule: r.Name, Action: r.Action.Name, Above: r.Above, Unit: st.metric.Unit, Of: st.metric.Of, Preview: r.Preview}
	st.sampled, st.lastFired = earlier(st.sampled, o.At), earlier(st.lastFired, o.At)
	value, at, why := st.measure(r, o)
	if why != "" {
		st.unknown(r, o.At, l, &f)
		f.Why = why
		return f, false
	}
	st.unknownSince = time.Time{}
	f.Value = value
	fresh := at.After(st.sampled)
	if fresh {
		st.sampled = at
		st.count(r, value > r.Above, o.At)
	}
	switch {
	case value > r.Above && st.firing:
		f.Phase, f.Count, f.Needed = Firing, st.breaches, r.Trigger
		if !fresh {
			f.Why = "the same measurement as before"
		}
	case value > r.Above:
		f.Phase, f.Count, f.Needed = Rising, st.breaches, r.Trigger
	case st.firing:
		f.Phase, f.Count, f.Needed = Falling, st.calm, r.Restore
	default:
		f.Phase, f.Count, f.Needed = Calm, st.calm, r.Restore
	}
	return f, fresh && f.Phase == Firing
}

// count adds a measurement. Thresholds are of measurements in a row: one that is not above ends the row, and so does one that is.
func (st *ruleState) count(r *Rule, above bool, now time.Time) {
	if above {
		st.calm = 0
		st.breaches = min(st.breaches+1, r.Trigger)
		if st.breaches >= r.Trigger {
			if !st.firing {
				st.repeats, st.dropping = st.again(r, now), time.Time{}
			}
			st.firing, st.judged, st.lastFired = true, true, now
		}
		return
	}
	st.breaches = 0
	st.calm = min(st.calm+1, r.Restore)
	if st.calm >= r.Restore {
		st.firing, st.judged = false, true
	}
}

// unknown ends a row of measurements. What has fired holds what it did for a while, and then ends.
func (st *ruleState) unknown(r *Rule, now time.Time, l Limits, f *Finding) {
	st.breaches, st.calm = 0, 0
	if st.unknownSince.IsZero() || st.unknownSince.After(now) {
		st.unknownSince = now
	}
	if now.Sub(st.unknownSince) >= holdFor(r, l) {
		st.firing, st.judged = false, true
	}
	f.Phase = Unknown
	if st.firing {
		f.Phase = Held
	}
}

// measure returns the highest of the selected series that counts, or why there is none.
func (st *ruleState) measure(r *Rule, o *Observation) (value float64, at time.Time, why string) {
	if !st.known {
		return 0, at, "there is no metric of this name"
	}
	samples, why := o.samples(r.Metric)
	if len(samples) == 0 {
		return 0, at, why
	}
	selected, counted := 0, 0
	for _, s := range samples {
		if r.Selects != nil && !r.Selects(s.Labels) {
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
func holdFor(r *Rule, l Limits) time.Duration { return max(l.HoldUnknown, r.Action.CoolDown) }
