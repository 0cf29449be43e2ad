// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"time"

	"crane.io/crane/internal/kube/workload"
)

// passStats counts what a round does with its targets, once for each recommender that looks at them.
type passStats struct {
	evaluated int
	// notAccepted are those that the recommenders' configuration does not accept, unsuited those of kinds that no recommender
	// of the rule looks at.
	notAccepted, unsupported int
	// young are those that are younger than the cool-down; the last of them is old enough at ripe.
	young       int
	oldEnoughAt time.Time
	cooldown    time.Duration
}

// count counts a target and tells whether the round evaluates it.
func (t *passStats) count(rd *pass, run *configuredRecommender, w workload.Workload) bool {
	switch ripe := w.Created.Add(run.cooldown); {
	case !run.accepts(w):
		t.notAccepted++
	case rd.catchUp && w.Created.After(rd.rule.Status.LastUpdateTime.Time):
		// It is the next round's, or those that follow a round would never end.
	case rd.now.Before(ripe):
		t.young++
		t.cooldown = run.cooldown
		if ripe.After(t.oldEnoughAt) {
			t.oldEnoughAt = ripe
		}
	default:
		t.evaluated++
		return true
	}
	return false
}

// String says what became of all targets.
func (t *passStats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d targets were evaluated.", t.evaluated)
	if t.young > 0 {
		fmt.Fprintf(&b, " %d are younger than %s (%s) and follow at %s.", t.young, keyCooldown, t.cooldown, t.oldEnoughAt.UTC().Format(time.RFC3339))
	}
	if t.notAccepted > 0 {
		fmt.Fprintf(&b, " %d are left out, for the recommender's acceptedResources do not name them.", t.notAccepted)
	}
	if t.unsupported > 0 {
		fmt.Fprintf(&b, " %d are of kinds that no recommender of the rule looks at.", t.unsupported)
	}
	return b.String()
}
