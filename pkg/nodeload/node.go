// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"slices"
	"time"

	"crane.io/crane/pkg/units"
)

// Load is one metric of a node. It is small, because Filter and Score read it for thousands of nodes per pod.
type Load struct {
	// Value is the measured load, as a fraction of capacity.
	Value units.Ratio
	// OnWay is the load of arriving pods less that of ended pods that it still contains, as a fraction of capacity.
	// It is at least -Value, at least 0 if the sample is not fresh, and at least 0 for a maximum.
	OnWay units.Ratio
	// Slack is the load that can be added before a maximum rises. It is 0 for metrics that are no maximum, and if
	// OnWay is more than 0.
	Slack units.Ratio
	// from and until bound the time in which the sample is fresh, in nanoseconds since 1970.
	from, until int64
}

// StateAt is Sample.StateAt in two comparisons.
func (l *Load) StateAt(now int64) State {
	switch {
	case l.until == 0:
		return Absent
	case now < l.from || now > l.until:
		return Stale
	}

	return Fresh
}

// Node is the input of decisions about a node: its capacity, loads and pending pods. It is immutable, so that many
// goroutines may read it.
type Node struct {
	Rules    *Rules
	Capacity Amount
	// Loads are in the order of the policy's metrics.
	Loads []Load
	// Arriving is the number of pods in Arrivals, including those that ended.
	Arriving int
	// Deviation is that of CPU and memory load; zero if unknown.
	Deviation [2]units.Ratio
	// Fresh has a bit for each metric that was fresh at creation.
	Fresh uint64

	inverse [kinds]float64
}

// Report is the reported state of a node.
type Report struct {
	Capacity Amount
	// Samples are in the order of the policy's metrics.
	Samples   []Sample
	Deviation [2]units.Ratio
}

// NodeAt builds a Node and drops covered pods from the arrivals.
//
// If a metric is not fresh there is no sample to cover a pod. Then the pod counts as covered one period after its
// window has passed, as in a cluster without faults. So a node without samples neither attracts pods without end nor
// rejects them for ever.
func (r *Rules) NodeAt(report Report, arrivals *Arrivals, now time.Time) *Node {
	n := r.newNode(report, now)
	measured := n.measured(report.Samples, now)
	arrivals.dropCovered(measured, r.windows, r.counting)
	n.add(arrivals, measured)

	return n
}

// PeekNode is NodeAt without changing the arrivals.
func (r *Rules) PeekNode(report Report, arrivals *Arrivals, now time.Time) *Node {
	n := r.newNode(report, now)
	n.add(arrivals, n.measured(report.Samples, now))
	return n
}

func (r *Rules) newNode(report Report, now time.Time) *Node {
	n := &Node{
		Rules:     r,
		Capacity:  report.Capacity,
		Loads:     make([]Load, len(report.Samples)),
		Deviation: report.Deviation,
	}

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

		// A time in the future is accepted up to MaxSkew.
		l.from = s.Time.Add(-MaxSkew).UnixNano()
		l.until = s.Time.Add(r.Policy.Metrics[i].Active()).UnixNano()
	}

	n.Fresh = n.FreshAt(now)
	return n
}

// FreshAt returns a bit for each metric that is fresh.
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

// measured returns for each metric the time up to which pods are covered.
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
		pending := units.Ratio(arrivals.pendingLoad(k, measured[i], n.Rules.windows[i]) * n.inverse[k])

		minimum := units.Ratio(0)
		if n.fresh(i) {
			minimum = -n.Loads[i].Value
		}

		n.Loads[i].OnWay = max(pending, minimum)
	}

	for i := range n.Loads {
		if n.Rules.maxima[i] && n.Rules.kinds[i] != kindOther {
			n.adjustMaximum(i)
		}
	}
}

// adjustMaximum sets OnWay and Slack of a maximum. The maximum was reached before the pods arrived, perhaps by pods
// that have ended, so pending load is not added to it: a maximum M becomes
//
//	max(M, present load + pending load),
//
// where the present load is that of Policy.Gauge of the resource. If that is missing or not fresh, M bounds it.
func (n *Node) adjustMaximum(metric int) {
	l := &n.Loads[metric]
	gauge := n.Rules.present(metric)
	above := n.Loads[gauge].OnWay
	switch {
	case !n.fresh(metric):
		above = max(above, 0)
	case gauge != metric && n.fresh(gauge):
		above += n.Loads[gauge].Value - l.Value
	}

	l.OnWay = max(above, 0)
	l.Slack = max(-above, 0)
}

func (n *Node) fresh(metric int) bool { return n.Fresh&(1<<metric) != 0 }

// Incoming returns what a pod adds to a metric of the node, as a fraction of capacity.
func (n *Node) Incoming(metric int, use Amount) units.Ratio {
	return n.Loads[metric].increase(n.share(metric, use))
}

// increase returns by how much the load rises if a load is added.
func (l *Load) increase(added units.Ratio) units.Ratio { return max(added-l.Slack, 0) }

func (n *Node) share(metric int, use Amount) units.Ratio {
	return n.Rules.share(use, n.Rules.kinds[metric], n.inverse)
}

// Used returns the current usage of the node by its fresh samples; 0 for others.
func (n *Node) Used(now time.Time) Amount {
	var used [kinds]float64
	at := now.UnixNano()
	for k, gauge := range n.Rules.gauges {
		if gauge >= 0 && n.Loads[gauge].StateAt(at) == Fresh {
			used[k] = min(float64(n.Loads[gauge].Value), 1) * n.Capacity.of(kind(k))
		}
	}

	return Amount{CPU: units.MilliCPU(used[kindCPU]), Memory: units.Bytes(used[kindMemory])}
}

// WithPod returns the node with one more arriving pod that does not run yet. Its cost depends on the number of
// metrics only.
func (n *Node) WithPod(use Amount) *Node {
	joined := *n
	joined.Loads = slices.Clone(n.Loads)
	for i := range joined.Loads {
		l := &joined.Loads[i]
		share := n.share(i, use)
		l.OnWay += l.increase(share)
		l.Slack = max(l.Slack-share, 0)
	}

	joined.Arriving++
	return &joined
}

const (
	// Grace is how much longer than its period a value is valid, as in gocrane.
	Grace = 5 * time.Minute
	// UndatedAge is how much older than its reading a value counts whose sample time is unknown: the samples of a dead
	// exporter remain in an average of five minutes, half of that on average.
	UndatedAge = 150 * time.Second
	// MaxSkew is how far in the future a time may be: clocks synchronized by NTP differ by less, writers in another
	// time zone by more.
	MaxSkew = time.Minute
	// HotActive is how long a hot value is valid, as in gocrane.
	HotActive = 5 * time.Minute
)

// State is the freshness of a value.
type State int8

// States of a value. Filter and Score use only Fresh values; the others are unknown, never zero.
const (
	// Absent means that there is no value, or an invalid one.
	Absent State = iota
	// Stale means that the value is too old, or from the future.
	Stale
	// Fresh means that the value can be used.
	Fresh
)

func (s State) String() string {
	switch s {
	case Fresh:
		return "fresh"
	case Stale:
		return "stale"
	default:
		return "absent"
	}
}

// StateAt returns the state of the sample if values are valid for active.
func (s Sample) StateAt(now time.Time, active time.Duration) State {
	return stateAt(s.Time, now, active)
}

// StateAt returns the state of the hot value.
func (h Hot) StateAt(now time.Time) State { return stateAt(h.Time, now, HotActive) }

func stateAt(at, now time.Time, active time.Duration) State {
	if at.IsZero() {
		return Absent
	}

	if age := now.Sub(at); age > active || age < -MaxSkew {
		return Stale
	}

	return Fresh
}
