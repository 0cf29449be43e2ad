// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"cmp"
	"fmt"
	"slices"

	"crane.io/crane/pkg/units"
)

// findDrift returns the change of an adopted workload by another client, or "". Changes of the owner take precedence.
func findDrift(in Input, s State) string {
	if s.Original.Replicas != nil {
		return findReplicasDrift(in, s)
	}

	if reason := cmp.Or(findTemplateDrift(in, s), findTargetDrift(in, s)); reason != "" {
		return reason
	}

	if s.Phase == Lowering || s.Phase == RollingBack {
		return "" // Pods are being resized.
	}

	for _, p := range in.Pods {
		if p.NotResizable == "" && p.Created.Before(s.PhaseSince) && !s.isKnownSize(p) && !in.hasEffectiveSize(p) {
			return fmt.Sprintf("pod %s was resized to %s by another client", p.Name, p.size().restrictTo(s.Current))
		}
	}

	return ""
}

// findTemplateDrift compares the pod template with the original size, or with the size that adoption wrote into it.
func findTemplateDrift(in Input, s State) string {
	want := s.templateSize()
	if s.Template != nil {
		want = *s.Template
		if !s.TemplateSeen && slices.ContainsFunc(append([]Size{s.templateSize(), want}, s.EarlierSizes...), in.Template.contains) {
			return "" // The write has not been read back yet.
		}
	}

	for _, a := range in.Template.amounts() {
		if _, managed := s.Original.Containers[a.container]; !managed {
			continue
		}

		now, _ := in.Template.get(a)
		if expected, isSet := want.get(a); !isSet || now != expected {
			return fmt.Sprintf("the owner has set %s of container %s in the pod template, it was %s", a.field.text(now), a.container, textOrNotSet(a.field, expected, isSet))
		}
	}

	for _, a := range want.amounts() {
		if _, exists := in.Template.Containers[a.container]; !exists {
			continue // The container was removed with its size.
		}

		if _, ok := in.Template.get(a); !ok {
			expected, _ := want.get(a)
			return fmt.Sprintf("the owner has removed %s of container %s from the pod template", a.field.text(expected), a.container)
		}
	}

	return ""
}

func textOrNotSet(f field, v int64, set bool) string {
	if !set {
		return "not set"
	}

	return f.text(v)
}

func findReplicasDrift(in Input, s State) string {
	now, ok := in.Template.get(amount{field: replicas})
	if !ok || slices.ContainsFunc(append([]Size{s.Original, s.Previous, s.Current}, s.EarlierSizes...), func(size Size) bool {
		v, ok := size.get(amount{field: replicas})
		return ok && v == now
	}) {
		return ""
	}

	return fmt.Sprintf("another client scaled the workload to %s", units.FormatCount(int(now), "replica"))
}
