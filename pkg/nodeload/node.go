// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

// Load is one metric of a node. It is small, because Filter and Score read those of thousands of nodes for every pod.
type Load struct {
	// Value that was measured, as a fraction of capacity.
	Value series.Ratio
	// OnWay is what the pods on their way add to it, less what it holds of pods that ended, as a fraction of capacity. It is
	// never less than -Value, and never negative where the sample is not fresh. That of a maximum is never negative.
	OnWay series.Ratio
	// Slack is how much may still come before it rises: a maximum that was reached is not passed by every pod. It is 0 for
	// what is no maximum, and where OnWay is more than 0.
	Slack series.Ratio
	// from and until bound the time in which the sample is fresh, in nanoseconds since 1970.
	from, until int64
}

// StateAt is that of Sample.StateAt, from two comparisons.
func (l *Load) StateAt(now int64) State {
	switch {
	case l.until == 0:
		return Absent
	case now < l.from || now > l.until:
		return Stale
	}
	return Fresh
}

// Node is all that decisions know of a node: its capacity, the loads that it carries, and what is on its way. It is made
// anew when one of them changes, and never changed, so that many may read it.
type Node struct {
	Rules    *Rules
	Capacity Amount
	// Loads in the order of the policy's metrics.
	Loads []Load
	// Arriving is the number of pods on their way, and of those that ended and are still in a metric.
	Arriving int
	// Deviation of the loads of CPU and memory; zero where it is not known yet.
	Deviation [2]series.Ratio
	// Fresh has a bit for each metric that was fresh when it was made.
	Fresh uint64

	inverse [kinds]float64
}

// Report is what a node says of itself, from which a Node is made.
type Report struct {
	Capacity Amount
	// Samples in the order of the policy's metrics.
	Samples   []Sample
	Deviation [2]series.Ratio
}

// Look puts together what is known of a node. What every metric covers is taken from the arrivals.
//
// Where a metric is not fresh there is no sample to cover a pod. Then the pod counts as covered when it would be in a
// cluster without fault: one period after its window has passed. So a node of which nothing is known neither draws pods
// without end nor keeps them against it for ever.
func (r *Rules) Look(report Report, arrivals *Arrivals, now time.Time) *Node {
	n := r.glance(report, now)
	measured := n.measured(report.Samples, now)
	arrivals.drop(measured, r.windows, r.counting)
	n.add(arrivals, measured)
	return n
}

// Peek is Look without a trace: nothing is taken from the arrivals.
func (r *Rules) Peek(report Report, arrivals *Arrivals, now time.Time) *Node {
	n := r.glance(report, now)
	n.add(arrivals, n.measured(report.Samples, now))
	return n
}

func (r *Rules) glance(report Report, now time.Time) *Node {
	n := &Node{Rules: r, Capacity: report.Capacity, Loads: make([]Load, len(report.Samples)), Deviation: report.Deviation}
	for k := range kind(kinds) {
		if c := report.Capacity.of(k); c > 0 {
			n.inverse[k] = 1 / c
		}
	}
	for i, s := range report.Samples {
		l := &n.Loads[i]
		l.Value = s.Value
		if s.Time.IsZero() {
			continue
		}
		l.from = s.Time.Add(-MaxSkew).UnixNano()
		l.until = s.Time.Add(r.Policy.Metrics[i].Active()).UnixNano()
	}
	n.Fresh = n.FreshAt(now)
	return n
}

// FreshAt has a bit for each metric that is fresh.
func (n *Node) FreshAt(now time.Time) uint64 {
	var fresh uint64
	at := now.UnixNano()
	for i := range n.Loads {
		if n.Loads[i].StateAt(at) == Fresh {
			fresh |= 1 << i
		}
	}
	return fresh
}

// measured is for each metric the time up to which pods are covered.
func (n *Node) measured(samples []Sample, now time.Time) []time.Time {
	measured := make([]time.Time, len(samples))
	for i, s := range samples {
		switch {
		case n.Fresh&(1<<i) == 0:
			measured[i] = now.Add(-n.Rules.Policy.Metrics[i].Period)
		case s.Time.After(now):
			measured[i] = now
		default:
			measured[i] = s.Time
		}
	}
	return measured
}

func (n *Node) add(arrivals *Arrivals, measured []time.Time) {
	n.Arriving = len(arrivals.pods)
	for i := range n.Loads {
		if !n.Rules.counting[i] || n.Arriving == 0 {
			continue
		}
		k := n.Rules.kinds[i]
		coming := series.Ratio(arrivals.coming(k, measured[i], n.Rules.windows[i]) * n.inverse[k])
		least := series.Ratio(0)
		if n.fresh(i) {
			least = -n.Loads[i].Value
		}
		n.Loads[i].OnWay = max(coming, least)
	}
	for i := range n.Loads {
		if n.Rules.maxima[i] && n.Rules.kinds[i] != kindOther {
			n.peak(i)
		}
	}
}

// peak works out what pods on their way do to a maximum. It was reached before they came, perhaps by pods that are gone, so
// they do not come on top of it: a maximum M becomes
//
//	max(M, load at present + on its way),
//
// where the load at present is what Policy.Gauge of the resource says. Without that, or while it is not fresh, M bounds it.
func (n *Node) peak(metric int) {
	l, gauge := &n.Loads[metric], n.Rules.present(metric)
	above := n.Loads[gauge].OnWay
	switch {
	case !n.fresh(metric):
		above = max(above, 0)
	case gauge != metric && n.fresh(gauge):
		above += n.Loads[gauge].Value - l.Value
	}
	l.OnWay, l.Slack = max(above, 0), max(-above, 0)
}

func (n *Node) fresh(metric int) bool { return n.Fresh&(1<<metric) != 0 }

// Incoming is what a pod adds to a metric of the node, as a fraction of capacity.
func (n *Node) Incoming(metric int, use Amount) series.Ratio {
	return n.Loads[metric].raised(n.share(metric, use))
}

// raised is by how much the load rises if so much comes.
func (l *Load) raised(by series.Ratio) series.Ratio { return max(by-l.Slack, 0) }

func (n *Node) share(metric int, use Amount) series.Ratio {
	return n.Rules.share(use, n.Rules.kinds[metric], n.inverse)
}

// Used is what the node uses now by its samples, where they are fresh; 0 where not.
func (n *Node) Used(now time.Time) Amount {
	var used [kinds]float64
	at := now.UnixNano()
	for k, gauge := range n.Rules.gauges {
		if gauge >= 0 && n.Loads[gauge].StateAt(at) == Fresh {
			used[k] = min(float64(n.Loads[gauge].Value), 1) * n.Capacity.of(kind(k))
		}
	}
	return Amount{CPU: series.MilliCPU(used[kindCPU]), Memory: series.Bytes(used[kindMemory])}
}

// Joined is the node with one more pod on its way that does not run yet. It costs as much as there are metrics, however
// many pods are on their way.
func (n *Node) Joined(use Amount) *Node {
	joined := *n
	joined.Loads = slices.Clone(n.Loads)
	for i := range joined.Loads {
		l, share := &joined.Loads[i], n.share(i, use)
		l.OnWay += l.raised(share)
		l.Slack = max(l.Slack-share, 0)
	}
	joined.Arriving++
	return &joined
}
