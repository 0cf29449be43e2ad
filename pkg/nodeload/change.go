// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"math"
	"time"

	"crane.io/crane/pkg/series"
)

// Cause says why a value is written; empty: it is not.
type Cause string

// The causes of a write.
const (
	// Missing: the node has no value, or one that cannot be read.
	Missing Cause = "missing"
	// Outdated: the value that is there no longer counts, or lies in the future.
	Outdated Cause = "outdated"
	// Crossed: a limit or a mark lies between the old value and the new one.
	Crossed Cause = "crossed"
	// Moved: the value differs by a material amount.
	Moved Cause = "moved"
	// AboveEvict: the value is above the mark evict, where each reading counts.
	AboveEvict Cause = "above evict"
	// Expiring: the old value would not count any more before the next reading is written.
	Expiring Cause = "expiring"
)

// writeTime is how long the writing of one round may take; a value that expires sooner after the next reading is renewed
// in this one.
const writeTime = time.Minute

// Writing says which changes are worth a write.
type Writing struct {
	// Material is the difference of two loads from which on it is told.
	Material series.Ratio
	// Thresholds are loads whose crossing is told however small the step, see Policy.Thresholds.
	Thresholds []series.Ratio
	// Evict is the mark above which every reading is written; 0 for none. Few nodes are there, and each reading counts for
	// those who act on it.
	Evict series.Ratio
	// Active is how long values count, Period the time to the next reading.
	Active, Period time.Duration
}

// Due says why next is written over old, which is zero where there is none or none that can be read.
func (w Writing) Due(old, next Sample, now time.Time) Cause {
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
	if math.Abs(float64(next.Value-old.Value)) >= float64(w.Material) {
		return Moved
	}
	if old.Time.Add(w.Active).Before(now.Add(w.Period + writeTime)) {
		return Expiring
	}
	return ""
}

// Thresholds are the loads of a metric at which somebody decides otherwise: the limits of Filter on it, and the marks of
// its resource.
func (p *Policy) Thresholds(metric int) []series.Ratio {
	var out []series.Ratio
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

// EvictMark is the mark evict of the resource of which the metric is the Gauge; 0 for others.
func (p *Policy) EvictMark(metric int) series.Ratio {
	resource := p.Metrics[metric].Resource
	if gauge, ok := p.Gauge(resource); !ok || gauge != metric {
		return 0
	}
	return p.Marks[resource].Evict
}

// HotDue says why the hot value want is written over have, which is zero where the node has none that can be read. Readers
// take a missing hot value for zero, so that zero is only written over what they would take for more. interval is the time
// to the next look.
func HotDue(have Hot, want int64, now time.Time, interval time.Duration) Cause {
	switch have.StateAt(now) {
	case Absent:
		if want > 0 {
			return Missing
		}
	case Stale:
		// gocrane's readers believe times in the future.
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
