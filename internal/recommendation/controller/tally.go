// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"time"

	"crane.io/crane/internal/kube/workload"
)

// tally counts what a round does with its targets, once for each recommender that looks at them.
type tally struct {
	evaluated int
	// refused are those that the recommenders' configuration does not accept, unsuited those of kinds that no recommender
	// of the rule looks at.
	refused, unsuited int
	// young are those that are younger than the cool-down; the last of them is old enough at ripe.
	young    int
	ripe     time.Time
	cooldown time.Duration
}

// takes counts a target and tells whether the round evaluates it.
func (t *tally) takes(rd *round, run *run, w workload.Workload) bool {
	switch ripe := w.Created.Add(run.cooldown); {
	case !run.accepts(w):
		t.refused++
	case rd.follows && w.Created.After(rd.rule.Status.LastUpdateTime.Time):
		// It is the next round's, or those that follow a round would never end.
	case rd.now.Before(ripe):
		t.young++
		t.cooldown = run.cooldown
		if ripe.After(t.ripe) {
			t.ripe = ripe
		}
	default:
		t.evaluated++
		return true
	}
	return false
}

// String says what became of all targets.
func (t *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d targets were evaluated.", t.evaluated)
	if t.young > 0 {
		fmt.Fprintf(&b, " %d are younger than %s (%s) and follow at %s.", t.young, keyCooldown, t.cooldown, t.ripe.UTC().Format(time.RFC3339))
	}
	if t.refused > 0 {
		fmt.Fprintf(&b, " %d are left out, for the recommender's acceptedResources do not name them.", t.refused)
	}
	if t.unsuited > 0 {
		fmt.Fprintf(&b, " %d are of kinds that no recommender of the rule looks at.", t.unsuited)
	}
	return b.String()
}
