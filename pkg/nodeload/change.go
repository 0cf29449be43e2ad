// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"math"
	"time"

	"crane.io/crane/pkg/units"
)

// Cause is why a value is written; empty if it is not.
type Cause string

// Causes of a write.
const (
	// Missing means that the node has no value, or an invalid one.
	Missing Cause = "missing"
	// Outdated means that the current value has expired or is in the future.
	Outdated Cause = "outdated"
	// Crossed means that a limit or a mark lies between the old value and the new one.
	Crossed Cause = "crossed"
	// Moved means that the value differs by at least MinChange.
	Moved Cause = "moved"
	// AboveEvict means that the value is above the mark evict, where each reading counts.
	AboveEvict Cause = "above evict"
	// Expiring means that the old value would expire before the next reading is written.
	Expiring Cause = "expiring"
)

// writeTime is the maximum duration of the writes of one run; a value that expires less than that after the next reading
// is renewed in this run.
const writeTime = time.Minute

// ChangeDetector determines which changes are written.
type ChangeDetector struct {
	// MinChange is the smallest difference of two loads that is written.
	MinChange units.Ratio
	// Thresholds are loads whose crossing is always written, see Policy.Thresholds.
	Thresholds []units.Ratio
	// Evict is the mark above which every reading is written; 0 for none. Few nodes are above it, and rebalancing
	// needs each reading.
	Evict units.Ratio
	// Active is how long values are valid, Period the time to the next reading.
	Active, Period time.Duration
}

// WriteCause returns why next replaces old, which is zero if there is none or an invalid one.
func (w ChangeDetector) WriteCause(old, next Sample, now time.Time) Cause {
	switch old.StateAt(now, w.Active) {
	case Absent:
		return Missing
	case Stale:
		if old.Time.After(now) || next.Time.After(old.Time) {
			return Outdated
		}

		return ""

	case Fresh:
	}

	// Only a newer reading is written.
	if !next.Time.After(old.Time) {
		return ""
	}

	for _, t := range w.Thresholds {
		if (old.Value > t) != (next.Value > t) {
			return Crossed
		}
	}

	if w.Evict > 0 && next.Value > w.Evict {
		return AboveEvict
	}

	if math.Abs(float64(next.Value-old.Value)) >= float64(w.MinChange) {
		return Moved
	}

	if old.Time.Add(w.Active).Before(now.Add(w.Period + writeTime)) {
		return Expiring
	}

	return ""
}

// Thresholds returns the loads of a metric at which decisions change: its limits in Filter, and the marks of its
// resource.
func (p *Policy) Thresholds(metric int) []units.Ratio {
	var out []units.Ratio
	for _, l := range p.Limits {
		if l.Metric == metric {
			out = append(out, l.Max)
		}
	}

	if m, ok := p.Marks[p.Metrics[metric].Resource]; ok {
		out = append(out, m.Low, m.Schedule, m.Evict)
	}

	return out
}

// EvictMark returns the mark evict of the resource of which the metric is the Gauge; 0 for others.
func (p *Policy) EvictMark(metric int) units.Ratio {
	resource := p.Metrics[metric].Resource
	if gauge, ok := p.Gauge(resource); !ok || gauge != metric {
		return 0
	}

	return p.Marks[resource].Evict
}

// HotCause returns why the hot value want replaces have, which is zero if the node has no valid one. Readers treat a
// missing hot value as zero, so zero only replaces a higher value. interval is the time to the next update.
func HotCause(have Hot, want int64, now time.Time, interval time.Duration) Cause {
	switch have.StateAt(now) {
	case Absent:
		if want > 0 {
			return Missing
		}
	case Stale:
		// gocrane's readers accept times in the future.
		if want > 0 || have.Time.After(now) {
			return Outdated
		}

	case Fresh:
		if have.Value != want {
			return Moved
		}

		if want > 0 && have.Time.Add(HotActive).Before(now.Add(interval+writeTime)) {
			return Expiring
		}
	}

	return ""
}
