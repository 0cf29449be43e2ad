// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
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
	f = Finding{
		Rule:      r.Name,
		Action:    r.Action.Name,
		Threshold: r.Threshold,
		Unit:      st.metric.Unit,
		Resource:  st.metric.Resource,
		Preview:   r.Preview,
	}

	// Times after now are left from before the clock was set back.
	st.sampled = earlier(st.sampled, o.At)
	st.lastFired = earlier(st.lastFired, o.At)

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
		f.Phase = Firing
		f.Count = st.breaches
		f.Needed = r.TriggerCount
		if !fresh {
			f.Reason = "the same measurement as before"
		}

	case value > r.Threshold:
		f.Phase = Rising
		f.Count = st.breaches
		f.Needed = r.TriggerCount

	case st.firing:
		f.Phase = Falling
		f.Count = st.calm
		f.Needed = r.RestoreCount
	default:
		f.Phase = Calm
		f.Count = st.calm
		f.Needed = r.RestoreCount
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
				st.refires = st.countRefires(r, now)
				st.reclaimingSince = time.Time{}
			}

			st.firing = true
			st.evaluated = true
			st.lastFired = now
		}

		return
	}

	st.breaches = 0
	st.calm = min(st.calm+1, r.RestoreCount)
	if st.calm >= r.RestoreCount {
		st.firing = false
		st.evaluated = true
	}
}

// markUnknown resets the counts. A rule that fired keeps its actions for a while and then ends.
func (st *ruleState) markUnknown(r *Rule, now time.Time, l Limits, f *Finding) {
	st.breaches, st.calm = 0, 0
	if st.unknownSince.IsZero() || st.unknownSince.After(now) {
		st.unknownSince = now
	}

	if now.Sub(st.unknownSince) >= holdFor(r, l) {
		st.firing = false
		st.evaluated = true
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

	// The highest value decides; the newest measurement among the series is the one that is counted.
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

// Policy holds the rules and bounds of a node.
type Policy struct {
	// Rules are in the order in which they act.
	Rules []Rule
	// WaterMarks are the shares of the capacity in use below which no pod is evicted; resources without an entry have none.
	WaterMarks map[units.Resource]units.Ratio
	// Unthrottled lists resources that trigger evictions but are never throttled, so that evictions do not wait for throttles.
	Unthrottled map[units.Resource]bool
	// Limits bound the actions.
	Limits Limits
}

// Limits bound the actions of all rules.
type Limits struct {
	// MaxEvictions is the number of pods of the node that may be evicted within EvictionWindow.
	MaxEvictions   int
	EvictionWindow time.Duration
	// Excess is the share to release beyond the excess over a threshold, so that the node does not stay right at it.
	Excess units.Ratio
	// RestoreMargin is the share of a threshold that stays free when CPU is restored; without it the next measurement would exceed the
	// threshold again.
	RestoreMargin units.Ratio
	// UnknownHold is how long the actions of a rule stay while its metric is unknown, or the cool-down if that is longer.
	UnknownHold time.Duration
	// StuckAfter is how long beyond its grace period a terminating pod still counts as about to end.
	StuckAfter time.Duration
	// ReclaimWait is how long the evictions of a rule wait while page cache is reclaimed. Page cache counts as available memory, so it is
	// worth only some seconds, and it cannot be reclaimed if pods read it again or the disk is slow.
	ReclaimWait time.Duration
	// RefusalBackoff is how long a pod is spared after its eviction was refused, as by a disruption budget.
	RefusalBackoff time.Duration
}

// DefaultLimits returns the default bounds. Excess is gocrane's --execute-excess; five evictions a minute leave time to see the effect of
// each, since pods take seconds to end; half a minute suffices to reclaim page cache in several steps.
func DefaultLimits() Limits {
	return Limits{
		MaxEvictions:   5,
		EvictionWindow: time.Minute,
		Excess:         0.1,
		RestoreMargin:  0.05,
		UnknownHold:    5 * time.Minute,
		StuckAfter:     time.Minute,
		ReclaimWait:    30 * time.Second,
		RefusalBackoff: 10 * time.Second,
	}
}

// Rule defines when the node is under pressure.
type Rule struct {
	// Name identifies the rule, as nodeqos/rule.
	Name string
	// Metric is compared with Threshold, in the metric's own unit.
	Metric    string
	Threshold float64
	// Matches selects series by their labels; nil selects all.
	Matches func(labels map[string]string) bool
	// TriggerCount is the number of consecutive measurements above the threshold after which the rule fires, RestoreCount that of
	// measurements not above it after which the rule ends. Both are at least 1.
	TriggerCount, RestoreCount int
	// MaxAge is the largest age of a usable measurement.
	MaxAge time.Duration
	// Preview reports the action instead of taking it.
	Preview bool
	Action  Action
}

// Action is taken while a rule fires. New pods are kept away in any case.
type Action struct {
	Name string
	// CoolDown is how long new pods are kept away after the rule last fired.
	CoolDown time.Duration
	Throttle *CPUThrottling
	// ThrottleMemory is nil if memory is not throttled.
	ThrottleMemory *MemoryThrottleSettings
	Evict          *EvictionSettings
}

// CPUThrottling lowers the CPU quota of pods.
type CPUThrottling struct {
	// Step is the share by which a container's quota, or its use if lower, is reduced per measurement, and restored.
	Step units.Ratio
	// Floor is the share of its limit that a container keeps; it always keeps its request.
	Floor units.Ratio
}

// EvictionSettings evict pods.
type EvictionSettings struct {
	// GracePeriod is the grace period; nil for the pod's own.
	GracePeriod *time.Duration
}

// FormatValue formats a metric value with its unit, large numbers of bytes as MiB.
func FormatValue(v float64, unit string) string {
	const mib = 1 << 20
	if rest, ok := strings.CutPrefix(unit, "bytes"); ok && math.Abs(v) >= mib {
		return fmt.Sprintf("%.1f MiB%s", v/mib, rest)
	}

	return strings.TrimSpace(fmt.Sprintf("%.4g %s", v, unit))
}
