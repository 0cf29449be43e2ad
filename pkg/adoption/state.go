// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

// Phase is what is being done with a workload.
type Phase string

// The phases.
const (
	// Untouched: nothing was adopted, or it was taken back.
	Untouched Phase = ""
	// Resting: pods have what they shall have.
	Resting Phase = "Resting"
	// Lowering: pods are being given less.
	Lowering Phase = "Lowering"
	// Watching: the last step is watched.
	Watching Phase = "Watching"
	// RollingBack: the last step made something worse, and pods are being given back what they had.
	RollingBack Phase = "RollingBack"
	// Held: rolled back; nothing is lowered for a while.
	Held Phase = "Held"
	// Withdrawing: pods are being given back what they had before adoption.
	Withdrawing Phase = "Withdrawing"
	// Stopped: somebody else has a say. Nothing is done until a person has looked at it.
	Stopped Phase = "Stopped"
)

// kept bounds the outcomes that a state remembers, and remembered the sizes of earlier steps.
const (
	maxOutcomes     = 10
	maxEarlierSizes = 8
)

// State is what has to survive: it is written down on the workload before anything is done. Its JSON is what others may
// read; fields are only added.
type State struct {
	Phase Phase `json:"phase,omitempty"`
	// PhaseSince is when the phase began, StepAt the last step down.
	PhaseSince time.Time `json:"since,omitzero"`
	StepAt     time.Time `json:"stepAt,omitzero"`
	// Reach says which pods get the size, ChangedAt when Current was last another.
	Reach     Reach     `json:"reach,omitempty"`
	ChangedAt time.Time `json:"changedAt,omitzero"`
	// Recommendation names the recommendation that is adopted, as namespace/name.
	Recommendation string `json:"by,omitempty"`
	// Original is what the workload asked for before adoption, and Owner the field manager that had said so.
	Original Size   `json:"earlier,omitzero"`
	Owner    string `json:"owner,omitempty"`
	// Previous is what pods had before the last step; Current is what they shall have now, and what new pods get.
	Previous Size `json:"before,omitzero"`
	Current  Size `json:"current,omitzero"`
	// Template is what the pod template is given, nil where it is left alone; TemplateSeen, that it was seen to have it.
	Template     *Size `json:"template,omitempty"`
	TemplateSeen bool  `json:"templateSeen,omitempty"`
	// Steps counts the steps down.
	Steps int `json:"steps,omitempty"`
	// Rollbacks counts those in a row; HeldUntil ends the rest after the last.
	Rollbacks int       `json:"rollbacks,omitempty"`
	HeldUntil time.Time `json:"heldUntil,omitzero"`
	// Throttled is the share of throttled CPU periods before the last step; nil where it was not known.
	Throttled *series.Ratio `json:"throttled,omitempty"`
	// Reason says why it is stopped or held.
	Reason string `json:"reason,omitempty"`
	// Outcomes are the last steps down, oldest first.
	Outcomes []Outcome `json:"outcomes,omitempty"`
	// AdjustedTargets are the targets of the workload's autoscaler that move with the requests.
	AdjustedTargets []AdjustedTarget `json:"tied,omitempty"`
	// EarlierSizes are sizes of earlier steps, which pods may still have.
	EarlierSizes []Size `json:"given,omitempty"`
}

// Outcome is how a step ended.
type Outcome struct {
	At         time.Time `json:"at"`
	Size       string    `json:"size"`
	Regression string    `json:"worse,omitempty"`
}

// Clone shares nothing with the original.
func (s State) Clone() State {
	out := s
	out.Original, out.Previous, out.Current = s.Original.Clone(), s.Previous.Clone(), s.Current.Clone()
	if s.Template != nil {
		t := s.Template.Clone()
		out.Template = &t
	}
	out.Outcomes, out.AdjustedTargets = slices.Clone(s.Outcomes), slices.Clone(s.AdjustedTargets)
	out.EarlierSizes = nil
	for _, g := range s.EarlierSizes {
		out.EarlierSizes = append(out.EarlierSizes, g.Clone())
	}
	return out
}

// UnderWay tells that something is being lowered or watched: it counts in the budgets.
func (s State) UnderWay() bool { return s.Phase == Lowering || s.Phase == Watching }

// NewPodSize is what new pods shall get: nothing where nothing is adopted or a person has to look.
func (s State) NewPodSize() (Size, bool) {
	switch s.Phase {
	case Untouched, Withdrawing, Stopped:
		return Size{}, false
	default:
		return s.Current, !s.Current.Empty()
	}
}

func (s *State) recordOutcome(now time.Time, worse string) {
	s.Outcomes = append(s.Outcomes, Outcome{At: now, Size: s.Current.String(), Regression: worse})
	if n := len(s.Outcomes); n > maxOutcomes {
		s.Outcomes = s.Outcomes[n-maxOutcomes:]
	}
}

func (s *State) rememberSize(size Size) {
	for _, g := range s.EarlierSizes {
		if g.Equal(size) {
			return
		}
	}
	s.EarlierSizes = append(s.EarlierSizes, size.Clone())
	if n := len(s.EarlierSizes); n > maxEarlierSizes {
		s.EarlierSizes = s.EarlierSizes[n-maxEarlierSizes:]
	}
}

// Encode is the state as it is written down; an untouched one is empty.
func (s State) Encode() (string, error) {
	if s.Phase == Untouched && s.Original.Empty() {
		return "", nil
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("writing the state of adoption: %w", err)
	}
	return string(raw), nil
}

// ParseState reads what Text has written. What it cannot read is an error, and no state: nothing may be done then, for nobody
// knows what was done before.
func ParseState(text string) (State, error) {
	var s State
	if text == "" {
		return s, nil
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return State{}, fmt.Errorf("state of adoption: %w", err)
	}
	switch s.Phase {
	case Resting, Lowering, Watching, RollingBack, Held, Withdrawing, Stopped:
	default:
		return State{}, fmt.Errorf("state of adoption: phase %q is not known", s.Phase)
	}
	for name, size := range map[string]Size{"earlier": s.Original, "before": s.Previous, "current": s.Current} {
		for _, a := range size.amounts() {
			if v, _ := size.get(a); v < 0 {
				return State{}, fmt.Errorf("state of adoption: %s: %s: negative", name, a.container)
			}
		}
	}
	for _, t := range s.AdjustedTargets {
		if t.Percent < 1 || t.Set < 1 || t.Previous < 1 {
			return State{}, fmt.Errorf("state of adoption: target %s: must be 1 or more", t.Target)
		}
	}
	switch s.Reach {
	case InPlace, NewPods, Recreate, InPlaceOrRecreate:
	default:
		return State{}, fmt.Errorf("state of adoption: reach %q is not known", s.Reach)
	}
	// A container that asked for nothing has an earlier size without amounts.
	if len(s.Original.Containers) == 0 && s.Original.Replicas == nil || s.Current.Empty() || s.Steps < 0 || s.Rollbacks < 0 {
		return State{}, fmt.Errorf("state of adoption: phase %s without the sizes that it needs", s.Phase)
	}
	return s, nil
}
