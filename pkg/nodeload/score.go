// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"math"

	"crane.io/crane/pkg/series"
)

// Cost is how little a node is wanted for a pod; the smaller the better.
type Cost float64

// maxCost bounds costs, so that they fit into what the scheduler carries.
const maxCost = 1e6

// Parts are the cost of a node for a pod and what it consists of: sums by the weights of the metrics in force.
type Parts struct {
	// Cost is finite, whatever the node reports.
	Cost Cost
	// Load is what the node reports, OnWay what is on its way to it, Incoming what the pod adds. With Spread the cost is
	// their sum.
	Load, OnWay, Incoming series.Ratio
	// Unknown tells that a metric is not fresh on the node.
	Unknown bool
}

// Weigh is the cost of placing a pod that will use so much on the node: by the weights of the metrics in force, the
// strategy's cost of
//
//	load + load on its way + incoming.
//
// With Spread this orders nodes as gocrane's sum of weight * (1-load) does. A metric that is not fresh on the node counts
// as the mean of the nodes on which it is: what is not known is neither best nor worst. now is in nanoseconds since 1970.
// The node must have been made by the rules of the fleet.
func (f *Fleet) Weigh(n *Node, use Amount, now int64) Parts {
	var p Parts
	var sum float64
	for i := range f.weights {
		w := &f.weights[i]
		load := &n.Loads[w.Metric]
		value := load.Value
		if now < load.from || now > load.until {
			value, p.Unknown = f.Mean[w.Metric], true
		}
		incoming := n.Incoming(w.Metric, use)
		var deviation float64
		if k := f.Rules.kinds[w.Metric]; k != kindOther {
			deviation = float64(n.Deviation[k])
		}
		weight := series.Ratio(w.Weight)
		p.Load += weight * value
		p.OnWay += weight * load.OnWay
		p.Incoming += weight * incoming
		sum += w.Weight * f.Rules.Strategy.cost(float64(value+load.OnWay+incoming), deviation)
	}
	p.Cost = Cost(min(max(sum, -maxCost), maxCost))
	return p
}

// Weighs tells whether Score has anything to go by.
func (f *Fleet) Weighs() bool { return len(f.weights) > 0 }

// Incoming is what a pod that will use so much adds to the load of a node of mean capacity, by the weights.
func (f *Fleet) Incoming(use Amount) series.Ratio {
	var sum series.Ratio
	for _, w := range f.weights {
		sum += series.Ratio(w.Weight) * f.Rules.share(use, f.Rules.kinds[w.Metric], f.inverse)
	}
	return sum
}

// Step is the difference in cost that the pod makes there.
func (f *Fleet) Step(use Amount) Cost { return Cost(f.Rules.Strategy.step(float64(f.Incoming(use)))) }

// Scale turns the costs of the nodes that a pod may go to into scores from 0 to 100.
type Scale struct {
	best, span float64
}

const (
	// horizonSteps and horizonFloor say how much worse than the best a node is before its score is 0: as much as five
	// such pods, at least five points of a hundred of load. Within it differences count; beyond, how much worse a node is
	// does not matter, and one that is far off must not make the others look alike.
	horizonSteps, horizonFloor = 5, 0.05
	// leastSpan keeps the quotient finite where all costs are alike and the pod uses next to nothing.
	leastSpan = 1e-6
)

// NewScale takes the smallest and the largest cost of the nodes, and what difference the pod makes. The span from 100 down
// to 0 is that between the two costs, but
//
//	at most  max(5*step, 0.05)  and at least  step:
//
// nodes that differ by less than one such pod would make are close to each other in score as well, so that other plugins
// decide between them.
func NewScale(lowest, highest, step Cost) Scale {
	span := min(float64(highest-lowest), max(horizonSteps*float64(step), horizonFloor))
	return Scale{best: float64(lowest), span: max(span, float64(step), leastSpan)}
}

// Score of a cost, from 0 to 100. Only nodes at the lowest cost have 100.
func (s Scale) Score(cost Cost) int64 {
	score := 100 * (1 - (float64(cost)-s.best)/s.span)
	if !(score > 0) {
		return 0
	}
	return int64(math.Floor(min(score, 100)))
}
