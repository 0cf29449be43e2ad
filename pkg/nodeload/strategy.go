// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"fmt"
	"math"

	"crane.io/crane/pkg/units"
)

// StrategyName names the goal of Score.
type StrategyName string

// The strategies.
const (
	// Spread balances load: the node with the least resulting load is the best.
	Spread StrategyName = "Spread"
	// Pack fills nodes up to a target, so that others stay empty: the node that comes closest to it from below is the
	// best; above the target a node is worse than an empty one.
	Pack StrategyName = "Pack"
	// Risk balances load plus a margin for its variation.
	Risk StrategyName = "Risk"
)

// Strategy is the goal of Score and its parameters. The zero Strategy is Spread.
type Strategy struct {
	Name StrategyName
	// Target of Pack, more than 0 and less than 1; 0 for DefaultPackTarget.
	Target units.Ratio
	// Margin of Risk in standard deviations, from 0 up; 0 for DefaultRiskMargin.
	Margin float64
}

const (
	// DefaultPackTarget leaves capacity below a limit of 65%.
	DefaultPackTarget units.Ratio = 0.55
	// DefaultRiskMargin is one standard deviation, as in Trimaran's LoadVariationRiskBalancing.
	DefaultRiskMargin = 1
)

func (s *Strategy) check() error {
	if s.Name == "" {
		s.Name = Spread
	}
	if s.Target == 0 {
		s.Target = DefaultPackTarget
	}
	if s.Margin == 0 {
		s.Margin = DefaultRiskMargin
	}

	switch s.Name {
	case Spread, Pack, Risk:
	default:
		return fmt.Errorf("strategy %q: want %s, %s or %s", s.Name, Spread, Pack, Risk)
	}

	if !(s.Target > 0 && s.Target < 1) {
		return fmt.Errorf("target of %s: want more than 0 and less than 1, got %v", Pack, s.Target)
	}

	if !(s.Margin > 0) || math.IsInf(s.Margin, 0) {
		return fmt.Errorf("margin of %s: want more than 0 and finite, got %v", Risk, s.Margin)
	}

	return nil
}

// cost of one metric that would be at load. It rises with the load for Spread and Risk. For Pack it falls from 1/2 for
// an empty node to 0 at the target T, and rises from 1/2 just above it to 1 for a full node:
//
//	load <= T:  (1 - load/T) / 2
//	load >  T:  1/2 + (load-T) / (1-T) / 2
func (s *Strategy) cost(load, deviation float64) float64 {
	switch s.Name {
	case Pack:
		target := float64(s.Target)
		if load <= target {
			return (1 - load/target) / 2
		}

		return 0.5 + (load-target)/(1-target)/2

	case Risk:
		return load + s.Margin*deviation
	case Spread:
	}

	return load
}

// step is the difference in cost that a pod makes, which adds incoming to a load.
func (s *Strategy) step(incoming float64) float64 {
	if s.Name == Pack {
		return incoming / float64(s.Target) / 2
	}

	return incoming
}

// Open is the result of Closed if no limit excludes the node.
const Open = -1

// Closed returns the limit (an index in Policy.Limits) that excludes the node for a pod with the given expected
// usage, or Open. A node is excluded if for a metric
//
//	load + pending load + min(incoming, limit/2) > limit.
//
// The pod itself counts up to half of the limit, so that a pod that is large compared with the node fits on any node
// that is half as loaded as allowed; otherwise it would stay pending although its requests fit.
//
// A metric that is not fresh on the node excludes nothing; unknown reports that there was one. now is in nanoseconds
// since 1970. The node must have been created by the rules of the fleet.
func (f *Fleet) Closed(n *Node, use Amount, now int64) (limit int, unknown bool) {
	for _, i := range f.limits {
		l := &f.Rules.Policy.Limits[i]
		load := &n.Loads[l.Metric]
		if now < load.from || now > load.until {
			unknown = true
			continue
		}
		if load.Value+load.OnWay+load.increase(counted(n.share(l.Metric, use), l.Max)) > l.Max {
			return i, unknown
		}
	}

	return Open, unknown
}

func counted(incoming, limit units.Ratio) units.Ratio { return min(incoming, limit/2) }

// Counted returns the part of a pod's usage that counts against a limit on the node.
func (f *Fleet) Counted(n *Node, use Amount, limit int) units.Ratio {
	l := f.Rules.Policy.Limits[limit]
	return n.Loads[l.Metric].increase(counted(n.share(l.Metric, use), l.Max))
}

// Cost orders nodes for a pod; smaller is better.
type Cost float64

// maxCost bounds costs, so that they fit into the scheduler's scores.
const maxCost = 1e6

// CostParts are the cost of a node for a pod and its components, weighted by the metrics in force.
type CostParts struct {
	// Cost is finite for any report.
	Cost Cost
	// Load is the reported load, OnWay the pending load, Incoming the load of the pod. With Spread the cost is their
	// sum.
	Load, OnWay, Incoming units.Ratio
	// Unknown means that a metric is not fresh on the node.
	Unknown bool
}

// CostOf returns the cost of placing a pod with the given usage on the node: the strategy's cost, weighted by the
// metrics in force, of
//
//	load + pending load + incoming.
//
// With Spread this orders nodes as gocrane's sum of weight * (1-load) does. A metric that is not fresh on the node
// counts as the mean of the nodes on which it is: an unknown load is neither best nor worst. now is in nanoseconds
// since 1970. The node must have been created by the rules of the fleet.
func (f *Fleet) CostOf(n *Node, use Amount, now int64) CostParts {
	var p CostParts
	var sum float64
	for i := range f.weights {
		w := &f.weights[i]
		load := &n.Loads[w.Metric]
		value := load.Value
		if now < load.from || now > load.until {
			value = f.Mean[w.Metric]
			p.Unknown = true
		}

		incoming := n.Incoming(w.Metric, use)
		// The deviation is known of CPU and memory only.
		var deviation float64
		if k := f.Rules.kinds[w.Metric]; k != kindOther {
			deviation = float64(n.Deviation[k])
		}

		weight := units.Ratio(w.Weight)
		p.Load += weight * value
		p.OnWay += weight * load.OnWay
		p.Incoming += weight * incoming
		sum += w.Weight * f.Rules.Strategy.cost(float64(value+load.OnWay+incoming), deviation)
	}

	p.Cost = Cost(min(max(sum, -maxCost), maxCost))
	return p
}

// HasWeights reports whether any metric with a weight is in force.
func (f *Fleet) HasWeights() bool { return len(f.weights) > 0 }

// Incoming returns what a pod adds to the load of a node of mean capacity, by the weights.
func (f *Fleet) Incoming(use Amount) units.Ratio {
	var sum units.Ratio
	for _, w := range f.weights {
		sum += units.Ratio(w.Weight) * f.Rules.share(use, f.Rules.kinds[w.Metric], f.inverse)
	}

	return sum
}

// Step returns the difference in cost that the pod makes on such a node.
func (f *Fleet) Step(use Amount) Cost { return Cost(f.Rules.Strategy.step(float64(f.Incoming(use)))) }

// Scale converts the costs of the feasible nodes into scores from 0 to 100.
type Scale struct {
	best, span float64
}

const (
	// horizonSteps and horizonFloor bound the range of costs that scores distinguish: five such pods, or five points
	// of a hundred of load. Nodes that are worse have score 0, so that one far-off node does not make the others look
	// alike.
	horizonSteps, horizonFloor = 5, 0.05
	// minSpan keeps the quotient finite if all costs are equal and the pod uses almost nothing.
	minSpan = 1e-6
)

// NewScale returns the scale for the smallest and the largest cost and the difference that the pod makes. The span
// from 100 down to 0 is that between the two costs, but
//
//	at most  max(5*step, 0.05)  and at least  step:
//
// nodes that differ by less than one such pod get close scores, so that other plugins decide between them.
func NewScale(lowest, highest, step Cost) Scale {
	span := min(float64(highest-lowest), max(horizonSteps*float64(step), horizonFloor))
	return Scale{best: float64(lowest), span: max(span, float64(step), minSpan)}
}

// Score returns the score of a cost, from 0 to 100. Only nodes at the lowest cost have 100.
func (s Scale) Score(cost Cost) int64 {
	score := 100 * (1 - (float64(cost)-s.best)/s.span)
	if !(score > 0) {
		return 0
	}

	return int64(math.Floor(min(score, 100)))
}
