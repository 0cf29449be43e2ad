// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"strconv"
	"strings"
)

// Action is what a plan proposes to do with its target. The names are gocrane's.
type Action string

// The actions.
const (
	// NoAction leaves the target as it is: it already is as recommended.
	NoAction Action = "None"
	// Patch changes the target.
	Patch Action = "Patch"
	// Create makes an object beside the target, such as an autoscaler.
	Create Action = "Create"
	// Delete removes the target.
	Delete Action = "Delete"
)

// State says whether a plan has something to propose.
type State string

// The states.
const (
	// Ready plans have something to say: a number, or an action.
	Ready State = "Ready"
	// Learning plans have nothing to say yet: the history is too short.
	Learning State = "Learning"
	// NoData plans have nothing to say: what they would follow from was not found.
	NoData State = "NoData"
	// Refused plans have nothing to say: the target is as it must not be for the recommender, such as a workload that is
	// scaled to zero. The description says what would have to be otherwise.
	Refused State = "Refused"
	// Clear plans have found nothing wrong with a target of which only what is wrong is told: a node that is not idle. No
	// Recommendation is kept of it.
	Clear State = "Clear"
)

// Plan is what a recommender has decided about one target. Recommenders that have a value beside it embed it.
type Plan struct {
	State State
	// Action is empty unless State is Ready.
	Action Action
	// Reason is one word in CamelCase for programs, such as OrphanVolume; empty where State says enough.
	Reason string
	// Description says for people what is proposed and why, in whole sentences.
	Description string
	// Incomplete tells that part of the target has no value yet, while the rest of it has.
	Incomplete bool
	// Evidence are the numbers that the plan rests on.
	Evidence []Evidence
	// Steps lead from what was measured to what is proposed, in order, where the way is longer than a comparison.
	Steps []string
}

// Evidence is one number that a plan rests on, and the limit that it was held against.
type Evidence struct {
	// Name says what was measured, such as "p99 of cpu over 7 days".
	Name  string
	Value float64
	// Unit is how the number is read, such as "cores", "bytes", "%"; empty for a count.
	Unit string
	// Limit is what it was held against; nil where there is none.
	Limit *float64
}

// String is "p99 of cpu over 7 days 0.02 cores (limit 0.05)".
func (e Evidence) String() string {
	text := e.Name + " " + formatNumber(e.Value)
	if e.Unit != "" {
		text += " " + e.Unit
	}
	if e.Limit != nil {
		text += " (limit " + formatNumber(*e.Limit) + ")"
	}
	return text
}

// formatNumber keeps four digits: evidence is read by people, and what hardly moved is not another number.
func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// What Explain begins evidence and steps with.
const (
	evidenceMark = " Evidence: "
	stepsMark    = " Steps: "
)

// Explain is the description with the evidence and the steps behind it.
func (p Plan) Explain() string {
	text := p.Description
	if len(p.Evidence) > 0 {
		parts := make([]string, len(p.Evidence))
		for i, e := range p.Evidence {
			parts[i] = e.String()
		}
		text += evidenceMark + strings.Join(parts, "; ") + "."
	}
	if len(p.Steps) > 0 {
		text += stepsMark + strings.Join(p.Steps, "; ") + "."
	}
	return text
}

// WithoutEvidence is what an explanation says without the numbers behind it. These move a little with each look at the history; where what
// is said is the same, an older explanation of the same proposal is as good as a newer one.
func WithoutEvidence(explanation string) string {
	said, _, _ := strings.Cut(explanation, evidenceMark)
	said, _, _ = strings.Cut(said, stepsMark)
	return said
}

// ClearPlan returns a plan of a target with no finding.
func ClearPlan(description string) Plan { return Plan{State: Clear, Description: description} }
