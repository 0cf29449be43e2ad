// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"strconv"
	"strings"
)

// Action is the change that a plan proposes. The names are gocrane's.
type Action string

// The actions.
const (
	// NoAction leaves the target unchanged, since it already matches the recommendation.
	NoAction Action = "None"
	// Patch changes the target.
	Patch Action = "Patch"
	// Create creates an object beside the target, such as an autoscaler.
	Create Action = "Create"
	// Delete removes the target.
	Delete Action = "Delete"
)

// State is the state of a plan.
type State string

// The states.
const (
	// Ready plans have a number or an action.
	Ready State = "Ready"
	// Learning plans have none yet, because the history is too short.
	Learning State = "Learning"
	// NoData plans have none, because their input was not found.
	NoData State = "NoData"
	// Refused plans have none, because the recommender does not support the state of the target, such as a workload that is
	// scaled to zero. The description names what would have to change.
	Refused State = "Refused"
	// Clear plans have no finding, from recommenders that report findings only, such as idle nodes. Their targets have no
	// Recommendation.
	Clear State = "Clear"
)

// Plan is the decision of a recommender about one target. Recommenders that compute a value embed it.
type Plan struct {
	State State
	// Action is empty unless State is Ready.
	Action Action
	// Reason is a CamelCase word for programs, such as OrphanVolume; empty if State is sufficient.
	Reason string
	// Description explains the proposal in whole sentences.
	Description string
	// Incomplete is set if a part of the target has no value yet.
	Incomplete bool
	// Evidence holds the numbers behind the plan.
	Evidence []Evidence
	// Steps lead from the measured numbers to the proposed ones, in order, if a comparison does not explain them.
	Steps []string
}

// Evidence is one number behind a plan, and the limit that it was compared with.
type Evidence struct {
	// Name describes the measured quantity, such as "p99 of cpu over 7 days".
	Name  string
	Value float64
	// Unit is the unit of Value, such as "cores", "bytes", "%"; empty for a count.
	Unit string
	// Limit is nil if there is none.
	Limit *float64
}

// String returns a text such as "p99 of cpu over 7 days 0.02 cores (limit 0.05)".
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

// formatNumber formats a number with four digits, so that small changes do not change the text.
func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// Prefixes of the evidence and the steps in the text of Explain.
const (
	evidenceMark = " Evidence: "
	stepsMark    = " Steps: "
)

// Explain returns the description with evidence and steps.
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

// WithoutEvidence returns the text of Explain without evidence and steps. These change a little with every evaluation; if
// the rest is the same, so is the proposal.
func WithoutEvidence(explanation string) string {
	text, _, _ := strings.Cut(explanation, evidenceMark)
	text, _, _ = strings.Cut(text, stepsMark)
	return text
}

// ClearPlan returns a plan of a target with no finding.
func ClearPlan(description string) Plan { return Plan{State: Clear, Description: description} }
