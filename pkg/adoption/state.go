// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/units"
)

// Phase is the progress of adoption for one workload.
type Phase string

const (
	// Untouched means: nothing was adopted, or the original size was restored.
	Untouched Phase = ""
	// Resting means: pods have the size that they should have.
	Resting Phase = "Resting"
	// Lowering means: a step down is being carried out.
	Lowering Phase = "Lowering"
	// Watching means: all pods have the size of the last step, which is watched for regressions.
	Watching Phase = "Watching"
	// RollingBack means: the last step caused a regression, and pods are resized back.
	RollingBack Phase = "RollingBack"
	// Held means: after a rollback; nothing is lowered until HeldUntil.
	Held Phase = "Held"
	// Withdrawing means: adoption was switched off, and pods are resized to the original size.
	Withdrawing Phase = "Withdrawing"
	// Stopped means: another client changed the workload, or too many steps were rolled back. A person has to start adoption again.
	Stopped Phase = "Stopped"
)

// maxOutcomes and maxEarlierSizes bound the lists of a state.
const (
	maxOutcomes     = 10
	maxEarlierSizes = 8
)

// State is stored on the workload before a plan is carried out, so that any replica can continue from it. Its JSON format is public:
// fields are only added.
type State struct {
	Phase Phase `json:"phase,omitempty"`
	// PhaseSince is when the phase began, StepAt when the last step down began.
	PhaseSince time.Time `json:"since,omitzero"`
	StepAt     time.Time `json:"stepAt,omitzero"`
	// Reach selects the pods that get the size; ChangedAt is when Current last changed.
	Reach     Reach     `json:"reach,omitempty"`
	ChangedAt time.Time `json:"changedAt,omitzero"`
	// Recommendation is the adopted recommendation as namespace/name.
	Recommendation string `json:"by,omitempty"`
	// Original is the size of pods before adoption. Declared is the size that the pod template had then, which lacks the amounts that
	// the API server adds; nil if it is Original. Owner is the field manager that had set it.
	Original Size   `json:"earlier,omitzero"`
	Declared *Size  `json:"declared,omitempty"`
	Owner    string `json:"owner,omitempty"`
	// Previous is the size before the last step, and PreviousGiven reports that new pods got it; Current is the size that running pods should
	// have now.
	Previous      Size `json:"before,omitzero"`
	PreviousGiven bool `json:"beforeGiven,omitempty"`
	Current       Size `json:"current,omitzero"`
	// NewPods is the size that new pods get; nil while that is the size of their template.
	NewPods *Size `json:"newPods,omitempty"`
	// Uncreatable reports that the last step was undone because pods with its size were not created.
	Uncreatable bool `json:"uncreatable,omitempty"`
	// Template is the size written into the pod template, nil if none was; TemplateSeen reports that it was read back.
	Template     *Size `json:"template,omitempty"`
	TemplateSeen bool  `json:"templateSeen,omitempty"`
	// Steps counts the steps down.
	Steps int `json:"steps,omitempty"`
	// Rollbacks counts the rollbacks in a row; HeldUntil ends the pause after the last one.
	Rollbacks int       `json:"rollbacks,omitempty"`
	HeldUntil time.Time `json:"heldUntil,omitzero"`
	// Throttled is the share of throttled CPU periods before the last step; nil when unknown.
	Throttled *units.Ratio `json:"throttled,omitempty"`
	// Raised are the CPU requests of single pods that were raised within the day. A pod may have any request up to that.
	Raised []RaisedRequest `json:"raised,omitempty"`
	// Reason explains the phases Stopped and Held.
	Reason string `json:"reason,omitempty"`
	// Outcomes are the last steps down, oldest first.
	Outcomes []Outcome `json:"outcomes,omitempty"`
	// AdjustedTargets are the targets of the workload's autoscaler that change with the requests.
	AdjustedTargets []AdjustedTarget `json:"tied,omitempty"`
	// EarlierSizes are sizes of earlier steps, which some pods may still have.
	EarlierSizes []Size `json:"given,omitempty"`
}

// Outcome is the result of a step down. Regression is empty for a step that succeeded.
type Outcome struct {
	At         time.Time `json:"at"`
	Size       string    `json:"size"`
	Regression string    `json:"worse,omitempty"`
}

// Clone returns a deep copy.
func (s State) Clone() State {
	out := s
	out.Original = s.Original.Clone()
	out.Previous = s.Previous.Clone()
	out.Current = s.Current.Clone()

	if s.Template != nil {
		t := s.Template.Clone()
		out.Template = &t
	}
	if s.Declared != nil {
		d := s.Declared.Clone()
		out.Declared = &d
	}

	if s.NewPods != nil {
		size := s.NewPods.Clone()
		out.NewPods = &size
	}

	out.Outcomes = slices.Clone(s.Outcomes)
	out.AdjustedTargets = slices.Clone(s.AdjustedTargets)
	out.Raised = slices.Clone(s.Raised)
	out.EarlierSizes = nil
	for _, size := range s.EarlierSizes {
		out.EarlierSizes = append(out.EarlierSizes, size.Clone())
	}

	return out
}

// UnderWay reports whether something is being lowered or watched, which counts against the budgets.
func (s State) UnderWay() bool { return s.Phase == Lowering || s.Phase == Watching }

// enter returns the state in another phase.
func (s State) enter(phase Phase, now time.Time) State {
	s.Phase = phase
	s.PhaseSince = now
	return s
}

// recordOutcome returns the state with the outcome of its last step.
func (s State) recordOutcome(now time.Time, regression string) State {
	s.Outcomes = append(slices.Clip(s.Outcomes), Outcome{At: now, Size: s.Current.String(), Regression: regression})
	s.Outcomes = s.Outcomes[max(0, len(s.Outcomes)-maxOutcomes):]
	return s
}

// rememberSize returns the state with one more of the sizes that pods may have.
func (s State) rememberSize(size Size) State {
	if slices.ContainsFunc(s.EarlierSizes, size.Equal) {
		return s
	}

	s.EarlierSizes = append(slices.Clip(s.EarlierSizes), size.Clone())
	s.EarlierSizes = s.EarlierSizes[max(0, len(s.EarlierSizes)-maxEarlierSizes):]
	return s
}

// Encode returns the state in its stored form; "" for an untouched workload.
func (s State) Encode() (string, error) {
	if s.Phase == Untouched && s.Original.Empty() {
		return "", nil
	}

	raw, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encoding the adoption state: %w", err)
	}

	return string(raw), nil
}

// ParseState decodes the result of Encode. With an error it returns no state: nothing may be changed then, because it is unknown what
// was changed before.
func ParseState(text string) (State, error) {
	var s State
	if text == "" {
		return s, nil
	}

	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.validate()
	}

	if err != nil {
		return State{}, fmt.Errorf("adoption state: %w", err)
	}

	return s, nil
}

func (s State) validate() error {
	if !slices.Contains([]Phase{Resting, Lowering, Watching, RollingBack, Held, Withdrawing, Stopped}, s.Phase) {
		return fmt.Errorf("unknown phase %q", s.Phase)
	}

	if !slices.Contains([]Reach{InPlace, NewPods, Recreate, InPlaceOrRecreate}, s.Reach) {
		return fmt.Errorf("unknown reach %q", s.Reach)
	}

	sizes := map[string]Size{"earlier": s.Original, "before": s.Previous, "current": s.Current}
	if s.NewPods != nil {
		sizes["newPods"] = *s.NewPods
	}

	for name, size := range sizes {
		for _, a := range size.amounts() {
			if v, _ := size.get(a); v < 0 {
				return fmt.Errorf("%s: %s: must not be negative", name, a.container)
			}
		}
	}

	for _, t := range s.AdjustedTargets {
		if t.Percent < 1 || t.Set < 1 || t.Previous < 1 {
			return fmt.Errorf("target %s: must be 1 or more", t.Target)
		}
	}

	// The size of a container without requests has no amounts.
	if !s.Original.selectsAny() || !s.Current.selectsAny() {
		return fmt.Errorf("phase %s without its sizes", s.Phase)
	}

	if len(s.Raised) > maxRaised || slices.ContainsFunc(s.Raised, func(r RaisedRequest) bool { return r.CPU <= 0 }) {
		return fmt.Errorf("raised: must be at most %d requests above 0", maxRaised)
	}

	if s.Steps < 0 || s.Rollbacks < 0 {
		return errors.New("steps and rollbacks must not be negative")
	}

	return nil
}
