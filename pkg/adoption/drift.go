// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"cmp"
	"fmt"
	"slices"
)

// findDrift says who else has changed what is adopted; empty where nobody has. Whoever owns a workload has the last word.
func findDrift(in Input, s State) string {
	if s.Original.Replicas != nil {
		return findReplicasDrift(in, s)
	}
	if why := cmp.Or(findTemplateDrift(in, s), findTargetDrift(in, s)); why != "" {
		return why
	}
	if s.Phase == Lowering || s.Phase == RollingBack {
		return "" // Pods are on their way.
	}
	known := isKnownSize(s)
	for _, p := range in.Pods {
		if p.NotResizable == "" && p.Created.Before(s.PhaseSince) && !known(p) {
			return fmt.Sprintf("somebody has resized pod %s to %s", p.Name, p.size().restrictTo(s.Current))
		}
	}
	return ""
}

// findTemplateDrift compares the pod template with what it was, or with what it was given.
func findTemplateDrift(in Input, s State) string {
	want := s.Original
	if s.Template != nil {
		want = *s.Template
		if !s.TemplateSeen && slices.ContainsFunc(append([]Size{s.Original, want}, s.EarlierSizes...), in.Template.contains) {
			return "" // It is on its way there.
		}
	}
	for _, a := range in.Template.amounts() {
		if _, ours := s.Original.Containers[a.container]; !ours {
			continue
		}
		now, _ := in.Template.get(a)
		if then, had := want.get(a); !had || now != then {
			return fmt.Sprintf("the owner has set %s of container %s in the pod template, it was %s", a.field.text(now), a.container, textOrNotSet(a.field, then, had))
		}
	}
	for _, a := range want.amounts() {
		then, _ := want.get(a)
		if _, there := in.Template.Containers[a.container]; !there {
			continue // The container is gone, and its size with it.
		}
		if _, has := in.Template.get(a); !has {
			return fmt.Sprintf("the owner has taken %s of container %s out of the pod template", a.field.text(then), a.container)
		}
	}
	return ""
}

func textOrNotSet(f field, v int64, had bool) string {
	if !had {
		return "not set"
	}
	return f.text(v)
}

func findReplicasDrift(in Input, s State) string {
	now, ok := in.Template.get(amount{field: replicas})
	if !ok {
		return ""
	}
	for _, size := range append([]Size{s.Original, s.Previous, s.Current}, s.EarlierSizes...) {
		if v, ok := size.get(amount{field: replicas}); ok && v == now {
			return ""
		}
	}
	return fmt.Sprintf("somebody has scaled it to %d replicas", now)
}
