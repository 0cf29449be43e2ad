// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"cmp"
	"slices"
	"strings"

	"crane.io/crane/pkg/units"
)

// combinedEstimate is the combination of the answers of all estimators for one resource.
type combinedEstimate struct {
	// value is 0 where no estimator has an answer.
	value, lower, upper float64
	winner, reason      string
	// missing lists the missing answers that might have kept a request from being lowered; empty for none.
	missing string
	// failures lists the reasons of all missing answers.
	failures string
}

// combine selects the answer of the highest priority, and the larger one of equal priority. Answers that are no numbers count as
// failed.
func combine(r units.Resource, all []Estimate) combinedEstimate {
	ranked := slices.Clone(all)
	for i := range ranked {
		ranked[i] = ranked[i].Validated(r)
	}

	// The larger of equal priority comes first; the name makes the order deterministic.
	slices.SortStableFunc(ranked, func(a, b Estimate) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(b.effectiveValue(), a.effectiveValue()), cmp.Compare(a.Estimator, b.Estimator))
	})
	out := combinedEstimate{}
	floor := true
	level := 0

	var missing, silent []string
	for _, e := range ranked {
		if out.value > 0 && !floor && e.Priority < level {
			break // An answer of higher priority decides.
		}

		switch {
		case e.Failure != "":
			missing = append(missing, e.Estimator+" fails")
			silent = append(silent, e.Estimator+": "+e.Failure)
		case e.Pending != "":
			missing = append(missing, e.Estimator+" has no answer yet")
			silent = append(silent, e.Estimator+": "+e.Pending)
		default:
			level = e.Priority
			floor = floor && e.LowerBoundOnly
			out.include(e)
		}
	}

	if out.value > 0 && floor {
		missing = append(missing, "the maximum need is unknown")
	}

	out.missing = strings.Join(missing, ", ")
	out.failures = strings.Join(silent, "; ")
	return out
}

// effectiveValue returns the value of an estimate, 0 without an answer.
func (e Estimate) effectiveValue() float64 {
	if e.Failure != "" || e.Pending != "" {
		return 0
	}

	return e.Value
}

// include raises the combination to an answer that is larger.
func (c *combinedEstimate) include(e Estimate) {
	c.lower = max(c.lower, e.Lower)
	c.upper = max(c.upper, e.Upper)

	if e.Value > c.value {
		c.value = e.Value
		c.winner = e.Estimator
		c.reason = e.Reason
	}
}
