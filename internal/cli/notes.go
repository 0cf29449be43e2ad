// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"crane.io/crane/pkg/rightsize"
)

// note is what there is to say of a container beside its numbers.
func (r *report) note(it item, i int) string {
	var all []string
	for _, s := range r.sizes(it.plan.Containers[i]) {
		if words := noteOf(s.sizing); words != "" {
			all = append(all, string(s.resource)+": "+words)
		}
	}
	return strings.Join(all, "; ")
}

// noteOf is why there is no number, or what was found beside it.
func noteOf(s rightsize.Sizing) string {
	if s.Status != rightsize.Ready {
		return s.Message
	}
	var all []string
	say := func(words string) {
		if words != "" && !slices.Contains(all, words) {
			all = append(all, words)
		}
	}
	for _, step := range s.Steps {
		say(stepWords()[step.Code]) // The other steps are the usual way to a number; -o json and --explain show them.
	}
	for _, f := range s.Flags {
		words, known := flagWords()[f.Code]
		if !known {
			words = strings.ReplaceAll(string(f.Code), "-", " ")
		}
		say(words)
	}
	return strings.Join(all, ", ")
}

// stepWords are those steps that somebody who reads a table should know of.
func stepWords() map[rightsize.StepCode]string {
	return map[rightsize.StepCode]string{
		rightsize.StepFloor:   "raised to the policy's floor",
		rightsize.StepCeiling: "cut at the policy's ceiling",
		rightsize.StepNode:    "cut to the largest node",
		rightsize.StepOOM:     "raised after OOM kills",
	}
}

// flagWords say the findings shortly; --explain has their numbers.
func flagWords() map[rightsize.FlagCode]string {
	return map[rightsize.FlagCode]string{
		rightsize.FlagNoRequest:  "", // The column says so already.
		rightsize.FlagThrottled:  "throttled, its need is not known",
		rightsize.FlagLeak:       "leaks in a replica",
		rightsize.FlagGrowing:    "only grows",
		rightsize.FlagIdle:       "idle",
		rightsize.FlagSpike:      "had one spike",
		rightsize.FlagStartup:    "peaks at the start",
		rightsize.FlagTooLarge:   "larger than any node",
		rightsize.FlagOOM:        "raised after OOM kills",
		rightsize.FlagAutoscaled: "kept, an autoscaler works on it",
		rightsize.FlagLevelShift: "moved to a new level",
	}
}
