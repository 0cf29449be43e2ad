// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"time"

	"crane.io/crane/pkg/units"
)

// DefaultMinFresh is the share of nodes that must report a metric for it to be used.
const DefaultMinFresh units.Ratio = 0.5

// Fleet summarizes all nodes at a time: which metrics enough nodes report, and their means. It is immutable.
type Fleet struct {
	Rules *Rules
	// Time is when the nodes were counted.
	Time time.Time
	// Nodes is their number.
	Nodes int
	// States is the number of nodes by State: Fresh where every metric in force is, Absent where none can be read, Stale
	// in between.
	States [3]int
	// FreshNodes is by metric the number of nodes on which it is fresh.
	FreshNodes []int
	// Mean is by metric the mean load of the nodes on which it is fresh, each counted as at most 1, so that a node
	// with an absurd value does not change how the others are judged.
	Mean []units.Ratio
	// Share is the ratio of usage to requests.
	Share Share

	force   uint64
	limits  []int
	weights []Weight
	inverse [kinds]float64
}

// InForce reports whether enough nodes report the metric.
func (f *Fleet) InForce(metric int) bool { return f.force&(1<<metric) != 0 }

// Abstains reports that no metric is reported by enough nodes. Then load must not affect decisions.
func (f *Fleet) Abstains() bool { return f.force == 0 }

// Count builds a Fleet from all nodes, one after the other.
type Count struct {
	fleet     Fleet
	sums      []float64
	used      Amount
	requested Amount
	capacity  Amount
	masks     map[mask]int
}

// mask is what a node reports: a bit for each fresh metric, and whether it reports any valid value.
type mask struct {
	fresh uint64
	some  bool
}

// NewCount starts a count at a time.
func (r *Rules) NewCount(now time.Time) *Count {
	n := len(r.Policy.Metrics)
	return &Count{
		fleet: Fleet{
			Rules:      r,
			Time:       now,
			FreshNodes: make([]int, n),
			Mean:       make([]units.Ratio, n),
		},
		sums: make([]float64, n), masks: map[mask]int{},
	}
}

// Add counts a node and the sum of its pods' requests.
func (c *Count) Add(n *Node, requested Amount) {
	c.fleet.Nodes++
	at := c.fleet.Time.UnixNano()
	var m mask
	for i := range n.Loads {
		l := &n.Loads[i]
		state := l.StateAt(at)
		m.some = m.some || state != Absent
		if state == Fresh {
			m.fresh |= 1 << i
			c.fleet.FreshNodes[i]++
			c.sums[i] += min(float64(l.Value), 1)
		}
	}

	c.masks[m]++
	c.capacity.CPU += n.Capacity.CPU
	c.capacity.Memory += n.Capacity.Memory

	// Requests count only beside a known usage, since their ratio is learned.
	used := n.Used(c.fleet.Time)
	if used.CPU > 0 {
		c.used.CPU += used.CPU
		c.requested.CPU += requested.CPU
	}

	if used.Memory > 0 {
		c.used.Memory += used.Memory
		c.requested.Memory += requested.Memory
	}
}

// Fleet finishes the count. A metric is in force if at least the share minFresh of all nodes, and at least one,
// reports it fresh: otherwise it is ignored in Filter and Score on all nodes, because it would send every pod to the
// nodes without a value, or to those with one.
func (c *Count) Fleet(minFresh units.Ratio) *Fleet {
	f := c.fleet
	for i, n := range f.FreshNodes {
		if n == 0 {
			continue
		}

		f.Mean[i] = units.Ratio(c.sums[i] / float64(n))
		if float64(n) >= float64(minFresh)*float64(f.Nodes) {
			f.force |= 1 << i
		}
	}

	// A node is fresh if it reports every metric in force, and absent if it reports nothing.
	for m, n := range c.masks {
		switch {
		case !m.some:
			f.States[Absent] += n
		case f.force != 0 && m.fresh&f.force == f.force:
			f.States[Fresh] += n
		default:
			f.States[Stale] += n
		}
	}

	f.Share = LearnShare(c.used, c.requested)
	f.applyForce(c.capacity)
	return &f
}

// applyForce keeps the limits and weights of metrics in force and normalizes the weights to 1.
func (f *Fleet) applyForce(capacity Amount) {
	for i, l := range f.Rules.Policy.Limits {
		if f.InForce(l.Metric) {
			f.limits = append(f.limits, i)
		}
	}

	var sum float64
	for _, w := range f.Rules.Policy.Weights {
		if f.InForce(w.Metric) {
			f.weights = append(f.weights, w)
			sum += w.Weight
		}
	}

	for i := range f.weights {
		f.weights[i].Weight /= sum
	}

	for k := range kind(kinds) {
		if c := capacity.of(k); c > 0 {
			f.inverse[k] = float64(f.Nodes) / c
		}
	}
}
