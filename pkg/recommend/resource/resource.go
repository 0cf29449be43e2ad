// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resource recommends the requests of the containers of one workload. It sizes each container with package rightsize
// and summarizes the result for the workload.
package resource

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// Input describes one workload.
type Input struct {
	// Containers are those of the pod template, in its order.
	Containers []Container
	Policy     rightsize.Policy
	// PolicyWhy is the reason for the policy; empty for the default policy.
	PolicyWhy string
	// Now is the time of the decision.
	Now time.Time
	// Reacts is set if adoption raises the requests of running pods within the day while they use more.
	Reacts bool
	// MaxCPU and MaxMemory are the allocatable resources of the largest node; 0 if unknown.
	MaxCPU    units.MilliCPU
	MaxMemory units.Bytes
	// Autoscaler is the horizontal autoscaler that acts on the utilization of the requests; nil for none. Its targets change
	// together with the requests if Crane owns it. Otherwise the requests on which it acts stay unchanged.
	Autoscaler *Autoscaler
}

// Container is one container of the workload.
type Container struct {
	Name string
	// Init marks init containers that run to completion: each is sized by the peaks of its own runs. One without an observed
	// run stays unchanged, since most end before they are measured.
	Init bool
	// Sidecar marks restartable init containers: they run as long as the other containers and hold their request while the
	// following init containers run.
	Sidecar bool
	// Profile is the usage of the container over all pods; nil if there is none.
	Profile *rightsize.Profile
	// Current are the requests and limits in pods.
	Current rightsize.Resources
	OOMs    []rightsize.OOM
	// UnknownKills is the reason why kills are unknown; empty if they are known.
	UnknownKills string
	// Job marks a container of a job: the peak of a run is a sample.
	Job bool
	// JVM describes a Java heap; nil if there is none.
	JVM *rightsize.JVM
	// Raisable is set if the CPU request of a running container can be raised in place as far as it is exceeded.
	Raisable bool
	// HPA is the autoscaler that scales on the utilization of the container; nil if there is none.
	HPA *rightsize.HPA
	// Groups are the usages by node group of a DaemonSet container; empty for others.
	Groups []rightsize.NodeGroupUse
}

// Plan is the recommendation for one workload.
type Plan struct {
	// State is Ready as soon as one container has one number.
	State recommend.State
	// Action is empty unless State is Ready.
	Action recommend.Action
	// Incomplete is set if a container has no number for CPU or memory; its sizing has the reason.
	Incomplete bool
	// Description explains the changes, container by container.
	Description string
	// Containers are the recommendations, in the order of the pod template, without init containers that were never
	// observed.
	Containers []rightsize.Recommendation
	// Pod is the request of a pod as the scheduler counts it.
	Pod PodRequest
	// ScalePoint holds the targets of the autoscaler that must change together with the requests, so that it acts at the
	// same usage as before; empty if none must.
	ScalePoint []TargetChange
	// MeanPods is the mean number of running pods; only for jobs with observed runs.
	MeanPods float64
}

// Decide sizes each container. It has no side effects.
func Decide(in Input) Plan {
	in.Containers = withDefaultRequests(in.Containers)
	var plan Plan
	learning := false
	unseen := ""
	for _, c := range in.Containers {
		if !in.isSized(c) {
			unseen = c.Name
			continue
		}

		r := rightsize.Recommend(in.sizingInput(c), in.Policy)
		// Init containers are sized, but the state of the plan does not depend on them.
		if c.Init {
			plan.Containers = append(plan.Containers, r)
			continue
		}

		if in.Autoscaler == nil || !in.Autoscaler.Owned {
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
	if in.Autoscaler != nil && in.Autoscaler.Owned {
		plan.ScalePoint = in.Autoscaler.TargetChanges(plan.Containers)
	}

	plan.MeanPods = in.meanPods()
	plan.Description = describe(plan, unseen, in.PolicyWhy)
	if text := in.Autoscaler.Describe(plan.ScalePoint); text != "" {
		plan.Description += " " + text
	}

	return plan
}

// withDefaultRequests returns the containers with the requests that pods have because of limits.
func withDefaultRequests(containers []Container) []Container {
	out := slices.Clone(containers)
	for i := range out {
		out[i].Current = out[i].Current.WithDefaultRequests()
	}

	return out
}

// isSized reports whether a container is sized: all but init containers without an observed run.
func (in Input) isSized(c Container) bool {
	return !c.Init || len(c.Profile.Window(in.Now, max(in.Policy.CPU.Window, in.Policy.Memory.Window))) > 0
}

// CollectEvidence replays the policy over the history of each container that Decide sizes, in the same order.
func CollectEvidence(in Input) []rightsize.Evidence {
	in.Containers = withDefaultRequests(in.Containers)
	var all []rightsize.Evidence
	for _, c := range in.Containers {
		if in.isSized(c) {
			all = append(all, rightsize.CollectEvidence(in.sizingInput(c), in.Policy))
		}
	}

	return all
}

// sizingInput returns the input of package rightsize for one container.
func (in Input) sizingInput(c Container) rightsize.Input {
	return rightsize.Input{
		Container:        c.Name,
		Profile:          c.Profile,
		Current:          c.Current,
		OOMs:             c.OOMs,
		UnknownKills:     c.UnknownKills,
		Now:              in.Now,
		RunsToCompletion: c.Job || c.Init,
		Init:             c.Init,
		JVM:              c.JVM,
		HPA:              c.HPA,
		MaxCPU:           in.MaxCPU,
		MaxMemory:        in.MaxMemory,
		Groups:           c.Groups,
		Reacts:           in.Reacts && c.Raisable,
	}
}

// changes reports whether a container should change a request or a limit. Resources without a number stay unchanged.
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

// describe returns the changes of each container with their reasons.
func describe(p Plan, unseen, policyWhy string) string {
	if !slices.ContainsFunc(p.Containers, func(r rightsize.Recommendation) bool { return !r.Init }) {
		return "The pod template has no container that runs for the life of the pod."
	}

	var parts []string
	for _, r := range p.Containers {
		parts = append(parts, r.Container+": "+
			sentence("cpu", r.CPU, r.Current.CPURequest, r.Target.CPURequest, units.FormatCPU)+"; "+
			sentence("memory", r.Memory, r.Current.MemoryRequest, r.Target.MemoryRequest, units.FormatMemory))
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

// Steps returns the steps from usage to the numbers, by container and resource.
func (p Plan) Steps() []string {
	var out []string
	for _, r := range p.Containers {
		for _, sized := range []struct {
			resource string
			sizing   rightsize.Sizing
		}{{"cpu", r.CPU}, {"memory", r.Memory}} {
			for _, s := range sized.sizing.Steps {
				out = append(out, r.Container+" "+sized.resource+" "+s.String())
			}
		}
	}

	return out
}

// sentence returns a text such as "cpu 1 -> 250m (p95 of 14 days)", or the reason why there is no number.
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

// reasonsOf returns the source of a number, and the findings that it exceeds the nodes, that node groups differ, or that it misses its
// target or a weekly peak.
func reasonsOf(s rightsize.Sizing) string {
	parts := []string{s.Message}
	for _, f := range s.Flags {
		switch f.Code {
		case rightsize.FlagTooLarge, rightsize.FlagDissimilarNodes, rightsize.FlagTargetMissed, rightsize.FlagNotCalibrated, rightsize.FlagWeeklyPeak:
			parts = append(parts, f.Detail)
		}
	}

	return strings.Join(parts, "; ")
}

// holdAutoscaled keeps the current requests and limits if an autoscaler scales on their utilization and would need another
// target: a request that changes alone moves the usage at which the autoscaler acts. The steps name the target with which
// the user can change both.
func holdAutoscaled(r *rightsize.Recommendation, hpa *rightsize.HPA) {
	if hpa == nil {
		return
	}

	t := &r.Target
	now := &r.Current
	if holdRequest(&r.CPU, hpa.CPUUtilization, now.CPURequest, t.CPURequest, units.FormatCPU) {
		t.CPURequest = now.CPURequest
		t.CPULimit = now.CPULimit
	}

	if holdRequest(&r.Memory, hpa.MemoryUtilization, now.MemoryRequest, t.MemoryRequest, units.FormatMemory) {
		t.MemoryRequest = now.MemoryRequest
		t.MemoryLimit = now.MemoryLimit
	}

	r.HPA = nil // The targets of unchanged requests stay.
}

// holdRequest reports whether a request must stay, and records the reason.
func holdRequest[T units.MilliCPU | units.Bytes](s *rightsize.Sizing, target units.Ratio, now, wanted *T, format func(T) string) bool {
	if s.Status != rightsize.Ready || target <= 0 || now == nil || wanted == nil || *now <= 0 || *wanted <= 0 {
		return false
	}

	share := math.Round(100 * float64(target))
	newShare := math.Round(100 * float64(target) * float64(*now) / float64(*wanted))
	if newShare == share {
		return false // Targets are whole percent: this one stays the same.
	}

	s.Message = fmt.Sprintf("an autoscaler acts at %.0f %% of the request, so both move together or not at all: "+
		"%s would need a target of %.0f %%", share, format(*wanted), newShare)

	if last := len(s.Steps) - 1; last >= 0 {
		unit := s.Steps[last].Unit
		to := float64(*now)
		from := float64(*wanted)
		if unit == rightsize.Cores {
			from /= 1000
			to /= 1000
		}

		s.Steps = append(s.Steps, rightsize.Step{
			Code:   rightsize.StepHPA,
			Unit:   unit,
			From:   from,
			To:     to,
			Detail: s.Message,
		})
	}

	s.Flags = append(s.Flags, rightsize.Flag{Code: rightsize.FlagAutoscaled, Detail: s.Message})
	return true
}
