// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/units"
)

// Creation describes how the API server answers the creation of pods of a workload.
type Creation struct {
	// Missing is the number of pods by which the workload has fewer than it should. RefusedAt is when the creation of one was last refused,
	// and Message the answer; zero and empty if none was, or all exist.
	Missing   int
	RefusedAt time.Time
	Message   string
	// ByQuota reports that a ResourceQuota without room refused it.
	ByQuota bool
	// Refused are sizes of which no pod would be created, although one of the present size would.
	Refused []RefusedSize
	// Unknown is the reason why it is unknown whether pods of a size that has not been given yet would be created; empty if they would, as
	// far as it was checked.
	Unknown string
}

// RefusedSize is a size that the API server would refuse, and why.
type RefusedSize struct {
	Size   Size
	Reason string
}

// refusalOf returns why a size would be refused, or "".
func (c Creation) refusalOf(size Size) string {
	for _, r := range c.Refused {
		if r.Size.Equal(size) {
			return r.Reason
		}
	}

	return ""
}

// NewPodSize returns the size of new pods; ok is false while new pods keep the size of their template.
func (s State) NewPodSize() (size Size, ok bool) {
	switch s.Phase {
	case Untouched, Withdrawing, Stopped:
		return Size{}, false
	}

	if s.NewPods == nil || s.NewPods.Empty() {
		return Size{}, false
	}

	return *s.NewPods, true
}

// giveNewPods sets the size of new pods to the current one, as soon as that is known to be created: a running pod has it, or, where running
// pods cannot get it in place, the check of the creation has passed.
func giveNewPods(in Input, p Plan) Plan {
	s := p.State
	if s.Phase == Untouched || s.Phase == Stopped || s.Phase == Withdrawing || s.Current.Replicas != nil || s.givesNewPods(s.Current) {
		return p
	}

	if s.Current.Equal(s.Original) {
		p.State.NewPods = nil
		return p
	}

	if in.NewPodsUnsized != "" {
		p.newPodsRemark = in.NewPodsUnsized
		return p
	}

	if reason := newPodsDelay(in, s); reason != "" {
		p.newPodsRemark = fmt.Sprintf("new pods do not get %s yet: %s", s.Current, reason)
		return p.withRequeue(in.Policy.PollInterval)
	}

	size := s.Current.Clone()
	p.State.NewPods = &size
	return p
}

// givesNewPods reports whether new pods get exactly this size.
func (s State) givesNewPods(size Size) bool { return s.NewPods != nil && s.NewPods.Equal(size) }

// newPodsDelay returns why new pods do not get the current size yet, or "".
func newPodsDelay(in Input, s State) string {
	if reason := cmp.Or(in.Creation.refusalOf(s.Current), in.Creation.Unknown); reason != "" {
		return reason
	}

	if s.Reach == NewPods || s.Reach == Recreate {
		return ""
	}

	possible := false
	for _, pod := range in.Pods {
		to, reason := pod.replacementSize(s.Current)
		if pod.ResizeStatus == ResizeDone && pod.size().Equal(to) {
			return ""
		}

		if _, obstacle := s.evictionReason(pod, s.Current); obstacle != "" && s.Reach == InPlaceOrRecreate {
			if pod.Protected == "" { // Its replacement needs the size, also while other pods might still get it in place.
				return ""
			}

			continue // It will not show that the size is admitted.
		}

		inPlace, obstacle := pod.InPlaceSize(s.Current)
		possible = possible || pod.NotResizable == "" && reason == "" && obstacle == "" && inPlace.Equal(to)
	}

	// Where a pod can show that the size is admitted, that is waited for.
	if possible {
		return "no running pod has it"
	}

	return ""
}

// findCreationRefusal returns why pods are not created since a size was adopted, or "". A refusal before the size was stored has another
// cause, and so has that of a quota while no amount was raised: the original size would need more of it.
func findCreationRefusal(in Input, s State) string {
	c := in.Creation
	untouched := s.NewPods == nil && s.Template == nil && s.Current.Equal(s.Original)
	if s.Phase == Untouched || s.Current.Replicas != nil || untouched || c.Missing <= 0 || c.ByQuota && !raises(s.Original, s.Current) {
		return ""
	}

	// Kubernetes reports the time of events in whole seconds.
	if !notBefore(c.RefusedAt, s.ChangedAt.Truncate(time.Second)) {
		return ""
	}

	return fmt.Sprintf("%s missing since %s could not be created: %s", units.FormatCount(c.Missing, "pod"), formatClock(c.RefusedAt), c.Message)
}

// raises reports whether an amount is larger in the second size, or set in it alone.
func raises(from, to Size) bool {
	for _, a := range to.amounts() {
		after, _ := to.get(a)
		if before, isSet := from.get(a); !isSet || after > before {
			return true
		}
	}

	return false
}

// undo returns running and new pods, and the template, to the original size, because no pod of the current one is created, and then holds. A
// single step back could leave a size that is refused as well.
func undo(in Input, p Plan, reason string) Plan {
	s := p.State
	p = p.withEvent(true, "AdoptionRolledBack", "step %d caused a regression: %s; back from %s to %s", s.Steps, reason, s.Current, s.Original)
	s = s.recordOutcome(in.Now, reason).rememberSize(s.Current).enter(RollingBack, in.Now).endRaises(in.Now)
	s.Previous = s.Original.Clone()
	s.Current = s.Original.Clone()
	s.NewPods = nil
	s.Reason = reason
	s.Uncreatable = true
	s.Rollbacks++

	if s.Template != nil {
		declared := s.templateSize().Clone()
		s = s.rememberSize(*s.Template)
		s.Template = &declared
		s.TemplateSeen = false
	}

	p.State = s
	return p
}

// restoresTemplate reports whether an undone step is being taken out of the template.
func (s State) restoresTemplate() bool {
	return s.Uncreatable && s.Template != nil && s.Template.Equal(s.templateSize())
}

// restoreTemplate returns the template to what it had before adoption, after an undone step.
func restoreTemplate(in Input, p Plan) Plan {
	if !p.State.restoresTemplate() {
		return p
	}

	if in.Template.Equal(p.State.templateSize()) {
		p.State.Template = nil
		return p
	}

	declared := p.State.templateSize().Clone()
	p.Template = &declared
	p.RestoreTemplate = true
	return p.withRequeue(in.Policy.PollInterval)
}

// refusedSummary describes a size that is not applied because it would be refused.
func refusedSummary(verb string, to Size, reason string) string {
	return fmt.Sprintf("not %s to %s: %s", verb, to, reason)
}

// describeOutcome completes the summary of a plan that has nothing more to change: a size that not all pods have, or that was bounded, is not
// what was recommended.
func describeOutcome(in Input, p Plan, changes podChanges) Plan {
	if p.Summary == asRecommended {
		switch {
		case changes.remaining > 0:
			p.Summary = fmt.Sprintf("%s without %s yet", units.FormatCount(changes.remaining, "pod"), p.State.Current)
		case changes.excluded > 0:
			p.Summary = fmt.Sprintf("as recommended, except for %s", units.FormatCount(changes.excluded, "pod"))
		case len(in.Bounds) > 0:
			p.Summary = "as far as it is allowed: " + in.Bounds[0]
		}
	}

	p.Remarks = append(slices.Clip(p.Remarks), in.Bounds...)
	if p.newPodsRemark != "" {
		p.Remarks = append(p.Remarks, p.newPodsRemark)
	}

	return p
}
