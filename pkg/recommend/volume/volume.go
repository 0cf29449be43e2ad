// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volume finds unused persistent volumes: released ones, free ones without a claim, and bound ones that no pod
// mounts, has mounted recently, or would mount if its workload ran. Reading pods and claims does not belong here.
package volume

import (
	"fmt"
	"strings"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// Reasons of plans.
const (
	// ReasonUnclaimed means that a volume has no claim: it was released, or never claimed.
	ReasonUnclaimed = "Unclaimed"
	// ReasonUnmounted means that no pod mounts the claim of a volume.
	ReasonUnmounted = "Unmounted"
)

// Settings define when a volume counts as unused.
type Settings struct {
	// Hours is the time for which it must have been unused.
	Hours int
}

// ParseSettings parses the only key, unused-for (168h). gocrane had none and reported a volume as soon as no running pod
// mounted it.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := Settings{Hours: r.Hours("unused-for", 168, 1, 90*24)}
	return s, r.Err()
}

// Phase is the phase of a volume, with the names of Kubernetes.
type Phase string

// The phases.
const (
	Pending   Phase = "Pending"
	Available Phase = "Available"
	Bound     Phase = "Bound"
	Released  Phase = "Released"
	Failed    Phase = "Failed"
)

// Input describes one persistent volume.
type Input struct {
	Phase    Phase
	Capacity units.Bytes
	// KeepsData is set if the data remain when the object is deleted (reclaim policy Retain).
	KeepsData bool
	// Since is the time since the volume entered its phase, or since its creation if that is unknown.
	Since time.Duration
	// Claim is the claim that it is bound to as namespace/name; empty if there is none. ClaimGone is set if the claim does
	// not exist.
	Claim     string
	ClaimGone bool
	// MountingPods are pods that have not ended and mount the claim, MatchingWorkloads are workloads whose pods would.
	MountingPods, MatchingWorkloads []string
	// Mounted is the number of pods that mounted the claim in each hour.
	Mounted observation.Hours
}

// Decide returns whether the volume is unused. Volumes without data are not.
func Decide(in Input, s Settings) recommend.Plan {
	if in.Phase == Pending {
		return recommend.ClearPlan("It is being created.")
	}

	bound := in.Claim != "" && !in.ClaimGone && in.Phase == Bound
	if bound {
		switch {
		case len(in.MountingPods) > 0:
			return recommend.ClearPlan("Claim " + in.Claim + " is mounted by " + units.FormatFirst(in.MountingPods, 1) + ".")
		case len(in.MatchingWorkloads) > 0:
			return recommend.ClearPlan("No pod mounts claim " + in.Claim + " now; those of " + units.FormatFirst(in.MatchingWorkloads, 1) + " would.")
		}
	}

	minAge := time.Duration(s.Hours) * time.Hour
	if in.Since < minAge {
		return recommend.Plan{State: recommend.Learning, Description: fmt.Sprintf(
			"It has been %s for %s, and has to be for %s.", formatPhase(in.Phase), in.Since.Truncate(time.Minute), units.FormatHours(s.Hours))}
	}

	plan := recommend.Plan{
		State: recommend.Ready, Action: recommend.Delete,
		Evidence: []recommend.Evidence{{Name: "size", Value: float64(in.Capacity), Unit: "bytes"}},
	}

	// Without a claim no pod can have mounted it.
	if !bound {
		plan.Reason = ReasonUnclaimed
		plan.Description = "No claim has it: " + unclaimed(in) + "." + dataWarning(in)
		return plan
	}

	need := observation.DefaultRequirement(s.Hours)
	if state, why := need.Check("number of pods that mounted claim "+in.Claim, in.Mounted); state != recommend.Ready {
		return recommend.Plan{State: state, Description: "No pod mounts it now. " + why}
	}

	largest := need.Quantile(in.Mounted, 1)
	if largest > 0 {
		return recommend.ClearPlan("Claim " + in.Claim + " was mounted within " + units.FormatHours(s.Hours) + ".")
	}

	limit := 0.0
	plan.Evidence = append(plan.Evidence, recommend.Evidence{
		Name: "most pods that mounted it at once, over " + units.FormatHours(s.Hours), Value: largest, Limit: &limit,
	})
	plan.Reason = ReasonUnmounted
	plan.Description = fmt.Sprintf("No pod has mounted claim %s for %s, and the template of no workload names it. Delete the claim first.%s",
		in.Claim, units.FormatHours(s.Hours), dataWarning(in))

	return plan
}

func unclaimed(in Input) string {
	switch {
	case in.Phase == Available:
		return "it is free, and no claim has requested it"
	case in.Claim != "":
		return "claim " + in.Claim + ", whose data it holds, is gone"
	}

	return "it is " + formatPhase(in.Phase)
}

// dataWarning returns a sentence about what happens to the data.
func dataWarning(in Input) string {
	switch {
	case in.KeepsData:
		return " Its reclaim policy is Retain: what is stored stays, and is paid for, until it is deleted where it is stored."
	case in.Phase == Available:
		return ""
	}

	return " Its data go with it: make a snapshot of what may be needed."
}

func formatPhase(p Phase) string {
	if p == "" {
		return "in an unknown phase"
	}

	return strings.ToLower(string(p))
}
