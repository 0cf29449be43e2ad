// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resource recommends what the containers of one workload should request. It sizes each container with
// package rightsize and says what that means for the workload as a whole.
package resource

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// Input is all that is known of a workload when it is decided on.
type Input struct {
	// Containers of the pod template, in its order.
	Containers []Container
	Policy     rightsize.Policy
	// PolicyWhy says why it is that policy; empty for the one that all workloads have.
	PolicyWhy string
	// Now is the time of the decision.
	Now time.Time
	// MaxCPU and MaxMemory are what the largest node has for pods; 0 where it is not known.
	MaxCPU    series.MilliCPU
	MaxMemory series.Bytes
	// Autoscaler is the workload's, where whoever carries the plan out can move its targets together with the requests, or
	// leave both as they are. Where it is nil, a request on whose utilisation an autoscaler acts stays as it is.
	Autoscaler *Autoscaler
}

// Container is one container of the workload.
type Container struct {
	Name string
	// Init marks init containers: they end before the others start, so each is sized by the peaks of its own runs.
	// One that was never seen stays as it is: most are over before they are measured.
	Init bool
	// Sidecar marks init containers that are restarted: they run as long as the others, and hold their request while the
	// init containers after them run.
	Sidecar bool
	// Profile is what the container used over all pods; nil where nothing was found.
	Profile *rightsize.Profile
	Current rightsize.Resources
	OOMs    []rightsize.OOM
	// Job marks a container of a job: the peak of a run is a sample.
	Job bool
	// JVM is what is known of a Java heap, nil where there is none.
	JVM *rightsize.JVM
	// HPA is the autoscaler that scales on the container's utilisation, nil where there is none.
	HPA *rightsize.HPA
	// Groups are the uses by node group of a container of a DaemonSet; empty for all others.
	Groups []rightsize.NodeGroupUse
}

// Plan is what one workload should request.
type Plan struct {
	// State of the workload: Ready as soon as one container has one number.
	State recommend.State
	// Action is empty unless State is Ready.
	Action recommend.Action
	// Incomplete tells that a container lacks a number for CPU or memory; the reason is in its sizing.
	Incomplete bool
	// Description says for people what changes, container by container, and why.
	Description string
	// Containers are the recommendations, in the order of the pod template, without init containers that were never seen.
	Containers []rightsize.Recommendation
	// Pod is what the scheduler counts for a pod.
	Pod PodRequest
	// ScalePoint are the targets of the autoscaler that have to change together with the requests, so that it acts at the
	// same use as before; empty where none has to.
	ScalePoint []TargetChange
	// MeanPods is how many pods ran on average; only for jobs, of which runs were seen.
	MeanPods float64
}

// Decide sizes each container. It has no side effect.
func Decide(in Input) Plan {
	var plan Plan
	learning := false
	unseen := ""
	for _, c := range in.Containers {
		if !in.isSized(c) {
			unseen = c.Name
			continue
		}
		r := rightsize.Recommend(in.sizingInput(c), in.Policy)
		if c.Init {
			plan.Containers = append(plan.Containers, r)
			continue
		}
		if in.Autoscaler == nil {
			holdAutoscaled(&r, c.HPA)
		}
		plan.Containers = append(plan.Containers, r)
		if r.CPU.Status == rightsize.Ready || r.Memory.Status == rightsize.Ready {
			plan.State = recommend.Ready
		}
		plan.Incomplete = plan.Incomplete || !r.Ready()
		learning = learning || r.CPU.Status == rightsize.Learning || r.Memory.Status == rightsize.Learning
	}
	switch {
	case plan.State == recommend.Ready:
		plan.Action = recommend.NoAction
		if changes(plan.Containers) {
			plan.Action = recommend.Patch
		}
	case learning:
		plan.State = recommend.Learning
	default:
		plan.State = recommend.NoData
	}
	plan.Pod = podRequest(in.Containers, plan)
	plan.ScalePoint = in.Autoscaler.TargetChanges(plan.Containers)
	plan.MeanPods = in.meanPods()
	plan.Description = describe(plan, unseen, in.PolicyWhy)
	if text := in.Autoscaler.Describe(plan.ScalePoint); text != "" {
		plan.Description += " " + text
	}
	return plan
}

// isSized tells whether a container is sized: all but init containers of which no run was seen.
func (in Input) isSized(c Container) bool {
	return !c.Init || len(c.Profile.Window(in.Now, max(in.Policy.CPU.Window, in.Policy.Memory.Window))) > 0
}

// CollectEvidence replays the policy over the history of each container that Decide sizes, in the same order.
func CollectEvidence(in Input) []rightsize.Evidence {
	var all []rightsize.Evidence
	for _, c := range in.Containers {
		if in.isSized(c) {
			all = append(all, rightsize.CollectEvidence(in.sizingInput(c), in.Policy))
		}
	}
	return all
}

// sizingInput is what package rightsize needs to know of one container.
func (in Input) sizingInput(c Container) rightsize.Input {
	return rightsize.Input{
		Container: c.Name, Profile: c.Profile, Current: c.Current, OOMs: c.OOMs, Now: in.Now, RunsToCompletion: c.Job || c.Init, Init: c.Init, JVM: c.JVM,
		HPA: c.HPA, MaxCPU: in.MaxCPU, MaxMemory: in.MaxMemory, Groups: c.Groups,
	}
}

// changes tells whether a container should request or limit something else than it does. Resources without a number
// stay as they are.
func changes(all []rightsize.Recommendation) bool {
	for _, r := range all {
		if r.CPU.Status == rightsize.Ready &&
			(differs(r.Current.CPURequest, r.Target.CPURequest) || differs(r.Current.CPULimit, r.Target.CPULimit)) {
			return true
		}
		if r.Memory.Status == rightsize.Ready &&
			(differs(r.Current.MemoryRequest, r.Target.MemoryRequest) || differs(r.Current.MemoryLimit, r.Target.MemoryLimit)) {
			return true
		}
	}
	return false
}

func differs[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a != b
	}
	return *a != *b
}

// describe says for each container what changes and what it is derived from.
func describe(p Plan, unseen, policyWhy string) string {
	if !slices.ContainsFunc(p.Containers, func(r rightsize.Recommendation) bool { return !r.Init }) {
		return "The pod template has no container that runs for the life of the pod."
	}
	var parts []string
	for _, r := range p.Containers {
		parts = append(parts, r.Container+": "+
			sentence("cpu", r.CPU, r.Current.CPURequest, r.Target.CPURequest, rightsize.FormatCPU)+"; "+
			sentence("memory", r.Memory, r.Current.MemoryRequest, r.Target.MemoryRequest, rightsize.FormatMemory))
	}
	if unseen != "" {
		parts = append(parts, unseen+": runs before the others and was never seen running, so it stays as it is")
	}
	if text := p.Pod.String(); text != "" {
		parts = append(parts, text)
	}
	if p.MeanPods > 0 {
		parts = append(parts, fmt.Sprintf("On average %.3g pods of the job ran at once", p.MeanPods))
	}
	if policyWhy != "" {
		parts = append(parts, "Sized with "+policyWhy)
	}
	return strings.Join(parts, ". ") + "."
}

// Steps lead from the use to the numbers, by container and resource: what was seen, what was added and why, what bounds it.
func (p Plan) Steps() []string {
	var out []string
	for _, r := range p.Containers {
		for _, of := range []struct {
			resource string
			sizing   rightsize.Sizing
		}{{"cpu", r.CPU}, {"memory", r.Memory}} {
			for _, s := range of.sizing.Steps {
				out = append(out, r.Container+" "+of.resource+" "+s.String())
			}
		}
	}
	return out
}

// sentence is "cpu 1 -> 250m (p95 of 14 days)", or why there is no number.
func sentence[T comparable](resource string, s rightsize.Sizing, now, target *T, format func(T) string) string {
	switch {
	case s.Status != rightsize.Ready || target == nil:
		return resource + " has no number yet: " + s.Message
	case now == nil:
		return fmt.Sprintf("%s not set -> %s (%s)", resource, format(*target), reasonsOf(s))
	case *now == *target:
		return fmt.Sprintf("%s stays %s (%s)", resource, format(*target), reasonsOf(s))
	}
	return fmt.Sprintf("%s %s -> %s (%s)", resource, format(*now), format(*target), reasonsOf(s))
}

// reasonsOf is what a number was found from, that it is less than that where no node has as much, and what unlike nodes need.
func reasonsOf(s rightsize.Sizing) string {
	parts := []string{s.Message}
	for _, f := range s.Flags {
		if f.Code == rightsize.FlagTooLarge || f.Code == rightsize.FlagDissimilarNodes {
			parts = append(parts, f.Detail)
		}
	}
	return strings.Join(parts, "; ")
}
