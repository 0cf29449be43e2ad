// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import "slices"

// effectiveSize returns the size that pods have without adoption. The template alone stands for that only with the request that the API
// server sets beside a limit.
func (in Input) effectiveSize() Size {
	if in.Effective.Empty() {
		return in.Template.withDefaultRequests()
	}

	return in.Effective.Clone()
}

// hasEffectiveSize reports whether a pod has the size that new pods get now. It differs from the original size after a change of the
// defaults of a LimitRange.
func (in Input) hasEffectiveSize(p Pod) bool {
	to, reason := p.InPlaceSize(in.effectiveSize())
	return reason == "" && p.size().Equal(to)
}

// withDefaultRequests returns the size with a request for each limit without one.
func (s Size) withDefaultRequests() Size {
	out := s.Clone()
	for name, r := range out.Containers {
		out.Containers[name] = r.WithDefaultRequests()
	}

	return out
}

// templateSize returns the size in the pod template before adoption.
func (s State) templateSize() Size {
	if s.Declared == nil {
		return s.Original
	}

	return *s.Declared
}

// learnAmounts returns the state with the amounts of pods that it does not have: of a container that the owner added, of a default that
// a LimitRange got, and what earlier releases did not record. Without them, the first change would count as a raise, whatever it lowers.
func (s State) learnAmounts(in Input) State {
	if s.Phase == Untouched || s.Original.Replicas != nil {
		return s
	}

	effective := in.effectiveSize()
	before := s.Clone()
	declared := s.templateSize().Clone()
	changed := false
	for _, a := range effective.amounts() {
		if _, known := before.Original.get(a); known {
			continue
		}

		v, _ := effective.get(a)
		now, isDeclared := in.Template.get(a)
		_, managed := before.Original.Containers[a.container]
		if managed && isDeclared {
			continue // The owner has set it, which is drift.
		}

		if isDeclared {
			declared.set(a, now)
		}

		changed = true
		for _, size := range []*Size{&s.Original, &s.Previous, &s.Current} {
			if amount, isSet := size.get(a); !isSet || amount < v {
				*size = size.Clone()
				size.set(a, v)
			}
		}
	}

	if !changed {
		return s
	}

	// Pods may have the smaller size. One that lacks an amount would match pods with any.
	for _, size := range []Size{before.Previous, before.Current} {
		if size.hasAmountsOf(s.Original) {
			s = s.rememberSize(size)
		}
	}

	if !declared.Equal(s.Original) {
		s.Declared = &declared
	}

	return s
}

// templateGoal returns the current size for the pod template: without the amounts that pods have by default and that adoption did not
// change.
func (s State) templateGoal() Size {
	declared := s.templateSize()
	written := Size{}
	if s.Template != nil {
		written = *s.Template
	}

	out := Size{}
	for _, a := range s.Current.amounts() {
		v, _ := s.Current.get(a)
		_, isDeclared := declared.get(a)
		_, isWritten := written.get(a)
		if isDeclared || isWritten || s.changes(a) {
			out.set(a, v)
		}

		// A limit alone would be the request too.
		request := amount{a.container, a.field.request()}
		if v, ok := s.Current.get(request); ok && a.field.limit() && s.changes(a) {
			out.set(request, v)
		}
	}

	return out
}

// changes reports whether adoption changes an amount of pods.
func (s State) changes(a amount) bool {
	now, isSet := s.Current.get(a)
	original, wasSet := s.Original.get(a)
	return isSet != wasSet || now != original
}

// hasAmountsOf reports whether a size has all amounts of another, whatever their values.
func (s Size) hasAmountsOf(other Size) bool {
	return !slices.ContainsFunc(other.amounts(), func(a amount) bool {
		_, ok := s.get(a)
		return !ok
	})
}

// templateRestored reports whether the template has the size from before adoption again, and no amount that adoption added to it.
func (s State) templateRestored(template Size) bool {
	declared := s.templateSize()
	if s.Template == nil {
		return template.contains(declared)
	}

	for _, a := range s.Template.amounts() {
		_, isDeclared := declared.get(a)
		if _, isSet := template.get(a); isSet && !isDeclared {
			return false
		}
	}

	return template.contains(declared)
}
