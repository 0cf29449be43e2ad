// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/kube/podqos"
)

// ValidatePodQOS validates a PodQOS.
func ValidatePodQOS(q *ensurancev1alpha1.PodQOS, f Facts) Result {
	var v Result
	spec := field.NewPath("spec")
	s := &q.Spec
	v.addErrors(validateLabelSelector(s.LabelSelector, spec.Child("labelSelector"))...)

	// An empty selector matches nothing or everything, depending on which one it is.
	switch {
	case s.ScopeSelector == nil && (s.LabelSelector == nil || len(s.LabelSelector.MatchLabels)+len(s.LabelSelector.MatchExpressions) == 0):
		v.warnf(spec, "matches no pod: there is neither a labelSelector nor a scopeSelector")
	case s.ScopeSelector != nil && len(s.ScopeSelector.MatchExpressions) == 0:
		v.warnf(spec.Child("scopeSelector"), "is empty and matches every pod")
	}

	if s.ScopeSelector != nil {
		path := spec.Child("scopeSelector", "matchExpressions")
		for i, r := range s.ScopeSelector.MatchExpressions {
			v.merge(validateScope(r, path.Index(i)))
		}
		v.merge(validateScopesTogether(s.ScopeSelector.MatchExpressions, path))
	}

	for i, name := range s.AllowedActions {
		if _, ok := f.Actions[name]; !ok && f.Actions != nil {
			v.warnf(spec.Child("allowedActions").Index(i), "there is no AvoidanceAction %s yet", name)
		}
	}

	for _, i := range duplicates(s.AllowedActions, identity) {
		v.warnf(spec.Child("allowedActions").Index(i), "%s occurs earlier in the list", s.AllowedActions[i])
	}

	v.merge(warnUnusedPodFields(s, spec))
	return v
}

func validateScope(r ensurancev1alpha1.ScopeSelectorRequirement, path *field.Path) Result {
	var v Result
	for i, value := range r.Values {
		valuePath := path.Child("values").Index(i)
		switch r.ScopeName {
		case ensurancev1alpha1.ScopePriority:
			if low, high, err := podqos.ParsePriorityRange(value); err != nil {
				v.addErrors(field.Invalid(valuePath, value, err.Error()))
			} else if low > high {
				v.addErrors(field.Invalid(valuePath, value, "the range is empty: it begins above its end"))
			}

		case ensurancev1alpha1.ScopeNamespace:
			for _, msg := range validation.IsDNS1123Label(value) {
				v.addErrors(field.Invalid(valuePath, value, msg))
			}
		}
	}

	for _, i := range duplicates(r.Values, identity) {
		v.warnf(path.Child("values").Index(i), "%s occurs earlier in the list", r.Values[i])
	}

	return v
}

// validateScopesTogether warns of conditions that no pod can meet together.
func validateScopesTogether(list []ensurancev1alpha1.ScopeSelectorRequirement, path *field.Path) Result {
	var v Result
	for i, r := range list {
		if r.Operator != ensurancev1alpha1.ScopeOperatorIn || r.ScopeName == ensurancev1alpha1.ScopePriority || len(r.Values) == 0 {
			continue
		}

		// Each other condition on the same scope leaves fewer of its values.
		remaining := map[string]bool{}
		for _, value := range r.Values {
			remaining[value] = true
		}

		for _, other := range list {
			if other.ScopeName != r.ScopeName {
				continue
			}

			in := other.Operator == ensurancev1alpha1.ScopeOperatorIn
			maps.DeleteFunc(remaining, func(value string, _ bool) bool { return slices.Contains(other.Values, value) != in })
		}

		if len(remaining) == 0 {
			v.warnf(path.Index(i), "matches no pod: other conditions on %s exclude all of its values", r.ScopeName)
			return v
		}
	}

	return v
}

// warnUnusedPodFields warns of fields without an effect.
func warnUnusedPodFields(s *ensurancev1alpha1.PodQOSSpec, spec *field.Path) Result {
	var v Result
	v.warnUnused(s.PodQualityProbe != nil, spec.Child("podQualityProbe"))
	r := s.ResourceQOS
	path := spec.Child("resourceQOS")

	if r == nil {
		return v
	}

	v.warnUnused(r.MemoryQOS != nil, path.Child("memoryQOS"))
	v.warnUnused(r.NetIOQOS != nil, path.Child("netIOQOS"))
	v.warnUnused(r.DiskIOQOS != nil, path.Child("diskIOQOS"))

	if c := r.CPUQOS; c != nil {
		cpu := path.Child("cpuQOS")
		v.warnUnused(len(c.ContainerPriority) > 0, cpu.Child("containerPriority"))
		v.warnUnused(c.CPUBurst != nil, cpu.Child("cpuBurst"))
		v.warnUnused(c.HTIsolation != nil, cpu.Child("htIsolation"))
		v.warnUnused(c.CPUSet != nil, cpu.Child("cpuSet"))
		v.warnUnused(c.RDT != nil, cpu.Child("rdt"))
		v.warnUnused(len(c.ContainerRDT) > 0, cpu.Child("containerRdt"))
	}

	return v
}
