// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"cmp"
	"slices"
	"strings"
)

// combined is what all estimators together say of one resource.
type combined struct {
	// value is 0 where none has an answer.
	value, lower, upper float64
	wins, why           string
	// unsure says whose missing answer might have kept a request from being lowered; empty where none is missing.
	unsure string
	// silent says why there is no answer at all.
	silent string
}

// combine takes the answer of the highest priority, the larger one of equals. Answers that are no numbers count as failed.
func combine(r Resource, all []Estimate) combined {
	ranked := slices.Clone(all)
	for i := range ranked {
		ranked[i] = ranked[i].Checked(r)
	}
	// Of equals the larger comes first; the name makes the order a fixed one.
	slices.SortStableFunc(ranked, func(a, b Estimate) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(b.size(), a.size()), cmp.Compare(a.Estimator, b.Estimator))
	})
	out := combined{}
	floor := true
	var missing, silent []string
	level := 0
	for _, e := range ranked {
		if out.value > 0 && !floor && e.Priority < level {
			break // Decided by a higher one.
		}
		switch {
		case e.Failed != "":
			missing = append(missing, e.Estimator+" fails")
			silent = append(silent, e.Estimator+": "+e.Failed)
		case e.Pending != "":
			missing = append(missing, e.Estimator+" has no answer yet")
			silent = append(silent, e.Estimator+": "+e.Pending)
		default:
			level = e.Priority
			floor = floor && e.Floor
			out.take(e)
		}
	}
	if out.value > 0 && floor {
		missing = append(missing, "what it needs at most is not known")
	}
	out.unsure, out.silent = strings.Join(missing, ", "), strings.Join(silent, "; ")
	return out
}

// size is what an estimate asks for; nothing where it has no answer.
func (e Estimate) size() float64 {
	if e.Failed != "" || e.Pending != "" {
		return 0
	}
	return e.Value
}

// take takes an answer over where it is larger than what there is.
func (c *combined) take(e Estimate) {
	c.lower, c.upper = max(c.lower, e.Lower), max(c.upper, e.Upper)
	if e.Value > c.value {
		c.value, c.wins, c.why = e.Value, e.Estimator, e.Why
	}
}
