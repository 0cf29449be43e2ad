// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"fmt"
	"math"

	"crane.io/crane/pkg/series"
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
	Target series.Ratio
	// Margin of Risk in standard deviations, from 0 up; 0 for DefaultRiskMargin.
	Margin float64
}

const (
	// DefaultPackTarget leaves capacity below a limit of 65%.
	DefaultPackTarget series.Ratio = 0.55
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
