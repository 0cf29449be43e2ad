// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"strings"
	"testing"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/units"
	"crane.io/crane/pkg/vertical"
)

// TestAppliedWhileHeld checks that requests that stay as they are do not count as applied, with the reason of each, unless an adoption is
// under way or the requests are those needed.
func TestAppliedWhileHeld(t *testing.T) {
	size := func(r units.Resource, action vertical.Action, target, request int64) containerSizing {
		return containerSizing{"app", vertical.Sizing{Resource: r, Action: action, Target: target, Request: request, Reason: "that is 80 % of it"}}
	}

	held := size(units.CPU, vertical.Hold, 400, 500)
	for name, c := range map[string]struct {
		phase   adoption.Phase
		sizings []containerSizing
		want    string
	}{
		"both held":  {adoption.Untouched, []containerSizing{held, size(units.Memory, vertical.Hold, 400<<20, 500<<20)}, "RequestsHeld: cpu of app: 400m is needed; that is 80 % of it; memory of app: 400Mi"},
		"rested":     {adoption.Resting, []containerSizing{held}, "RequestsHeld: cpu of app"},
		"one raised": {adoption.Untouched, []containerSizing{held, size(units.Memory, vertical.Raise, 2, 2)}, "Adopted: as recommended"},
		"as needed":  {adoption.Resting, []containerSizing{size(units.CPU, vertical.Hold, 500, 500)}, "Resting: as recommended"},
		"under way":  {adoption.Lowering, []containerSizing{held}, "Lowering: as recommended"},
		"no sizes":   {adoption.Untouched, nil, "Adopted: as recommended"},
	} {
		s := autoscalerState{mode: autoscalingv1alpha1.UpdateModeAuto, recommendation: &analysisv1alpha1.Recommendation{}}
		s.recommendation.Status.Adoption = &analysisv1alpha1.AdoptionStatus{Phase: string(c.phase), Message: "as recommended"}

		got := appliedCondition(s, c.sizings, scalePoint{})
		if text := got.Reason + ": " + got.Message; !strings.HasPrefix(text, c.want) || got.OK == (got.Reason == reasonHeld) {
			t.Errorf("%s: %v %s, want %s", name, got.OK, text, c.want)
		}
	}
}
