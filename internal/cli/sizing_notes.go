// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/rightsize"
)

// note returns the remarks about a container, one part per resource.
func (r *report) note(it sizereport.Item, i int) string {
	var all []string
	for _, s := range r.resourceSizes(it.Plan.Containers[i]) {
		if text := sizingNote(s.sizing); text != "" {
			all = append(all, string(s.resource)+": "+text)
		}
	}

	return strings.Join(all, "; ")
}

// sizingNote returns why there is no recommendation, or the notable steps and findings of one.
func sizingNote(s rightsize.Sizing) string {
	if s.Status != rightsize.Ready {
		return s.Message
	}

	var all []string
	add := func(text string) {
		if text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}

	for _, step := range s.Steps {
		add(stepNotes()[step.Code]) // -o json and --explain list all steps.
	}

	for _, f := range s.Flags {
		text, ok := flagNotes()[f.Code]
		if !ok {
			text = strings.ReplaceAll(string(f.Code), "-", " ")
		}

		add(text)
	}

	return strings.Join(all, ", ")
}

// stepNotes returns the texts of the steps that the table mentions.
func stepNotes() map[rightsize.StepCode]string {
	return map[rightsize.StepCode]string{
		rightsize.StepFloor:   "raised to the policy's minimum",
		rightsize.StepCeiling: "capped at the policy's maximum",
		rightsize.StepNode:    "capped at the largest node",
		rightsize.StepOOM:     "raised after OOM kills",
	}
}

// flagNotes returns short texts of the findings; --explain prints their figures.
func flagNotes() map[rightsize.FlagCode]string {
	return map[rightsize.FlagCode]string{
		rightsize.FlagNoRequest:  "", // The column of the current request is empty.
		rightsize.FlagThrottled:  "throttled, demand unknown",
		rightsize.FlagLeak:       "memory leak in a replica",
		rightsize.FlagGrowing:    "grows steadily",
		rightsize.FlagIdle:       "idle",
		rightsize.FlagSpike:      "single spike",
		rightsize.FlagStartup:    "peaks at startup",
		rightsize.FlagTooLarge:   "larger than any node",
		rightsize.FlagOOM:        "raised after OOM kills",
		rightsize.FlagAutoscaled: "unchanged, managed by an autoscaler",
		rightsize.FlagLevelShift: "level shift",

		rightsize.FlagWeeklyPeak:  "weekly peak not covered",
		rightsize.FlagImplausible: "impossible samples ignored",

		rightsize.FlagTargetMissed:  "misses the target",
		rightsize.FlagNotCalibrated: "not calibrated, history too short",
	}
}
