// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/condition"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
	"crane.io/crane/pkg/vertical"
)

// plan is the desired state for one autoscaler.
type plan struct {
	// sizings are the decisions for each container of the target, in its order.
	sizings []containerSizing
	// action applies to the Recommendation of the autoscaler; size is its value, failures the message of its Failed condition.
	action   recommendationAction
	size     adoption.Size
	failures string
	// scalePoint is the change of a horizontal autoscaler that belongs to the size.
	scalePoint   scalePoint
	description  string
	conditions   []condition.State
	requeueAfter time.Duration
}

// containerSizing is the decision about one resource of one container.
type containerSizing struct {
	container string
	vertical.Sizing
}

// recommendationAction is an action on the Recommendation of an autoscaler.
type recommendationAction int

const (
	keepRecommendation recommendationAction = iota
	deleteRecommendation
	writeRecommendation
)

// decide returns the plan for one autoscaler. It has no side effects.
func decide(ns namespaceSnapshot, s autoscalerState) plan {
	if s.targetProblem != nil {
		return planWithoutTarget(*s.targetProblem)
	}

	last := s.lastSize()
	p := plan{action: deleteRecommendation, failures: s.estimates.failures(s.sizedContainers())}
	for _, c := range s.sizedContainers() {
		for _, r := range vertical.Resources() {
			sizing := containerSizing{c.Name, vertical.Decide(s.decisionInput(ns, c, r, last))}
			p.sizings = append(p.sizings, sizing)
			if sizing.RetryAfter > 0 && (p.requeueAfter == 0 || sizing.RetryAfter < p.requeueAfter) {
				p.requeueAfter = sizing.RetryAfter
			}
		}
	}

	if s.applies() {
		p.action = writeRecommendation
		p.size = restoreUncontrolled(desiredSize(p.sizings), s.target, p.sizings, last)
		// Without any size, the last one stays in force instead of being withdrawn.
		if p.size.Empty() {
			p.action = keepRecommendation
		}
	}

	p.scalePoint = newScalePoint(ns.constraints, s, p.sizings)
	p.description = describe(p.sizings, p.scalePoint)
	p.conditions = targetConditions(s, p.sizings, p.failures, p.scalePoint)

	return p
}

// planWithoutTarget returns the plan for a target that cannot be sized. A missing target has no Recommendation.
func planWithoutTarget(problem problem) plan {
	state := condition.State{Type: autoscalingv1alpha1.ConditionReady, Reason: problem.reason, Message: problem.message}
	if problem.reason != reasonTargetNotFound {
		return plan{conditions: []condition.State{state}}
	}

	applied := state
	applied.Type = conditionApplied
	return plan{action: deleteRecommendation, conditions: []condition.State{state, applied}}
}

// applies reports whether requests are applied to pods.
func (s autoscalerState) applies() bool {
	return s.mode != autoscalingv1alpha1.UpdateModeOff && s.modeErr == nil && s.applyProblem == nil
}

// lastSize returns the size of the existing Recommendation, empty for none and for one that cannot be parsed.
func (s autoscalerState) lastSize() adoption.Size {
	if s.recommendation == nil {
		return adoption.Size{}
	}

	size, err := targetsnapshot.DesiredSize(s.recommendation)
	if err != nil {
		return adoption.Size{}
	}

	return size
}

// decisionInput returns the input of the decision about one resource of one container.
func (s autoscalerState) decisionInput(ns namespaceSnapshot, c workload.Container, r units.Resource, last adoption.Size) vertical.Input {
	now := profile.CurrentResources(c)
	in := vertical.Input{
		Resource:    r,
		Now:         ns.now,
		Policy:      containerPolicy(s.evpa, c.Name),
		Estimates:   s.estimates[c.Name][r],
		LastChanges: s.lastChanges(c.Name, r),
	}

	in.Request = requestAmount(now, r)
	in.Limit = limitAmount(now, r)
	in.NodeCapacity = int64(ns.constraints.MaxCPU)
	if r == units.Memory {
		in.NodeCapacity = int64(ns.constraints.MaxMemory)
	}
	if in.Current = requestAmount(last.Containers[c.Name], r); in.Current == 0 {
		in.Current = in.Request
	}

	return in
}

func requestAmount(from rightsize.Resources, r units.Resource) int64 {
	if r == units.CPU {
		return int64(ptr.Deref(from.CPURequest, 0))
	}

	return int64(ptr.Deref(from.MemoryRequest, 0))
}

func limitAmount(from rightsize.Resources, r units.Resource) int64 {
	if r == units.CPU {
		return int64(ptr.Deref(from.CPULimit, 0))
	}

	return int64(ptr.Deref(from.MemoryLimit, 0))
}

// lastChanges returns the times in the status at which a request was changed last.
func (s autoscalerState) lastChanges(container string, r units.Resource) vertical.ChangeTimes {
	var out vertical.ChangeTimes
	for _, d := range s.evpa.Status.Decisions {
		if d.ContainerName != container || d.Resource != corev1.ResourceName(r) {
			continue
		}

		if d.RaisedAt != nil {
			out.RaisedAt = d.RaisedAt.Time
		}
		if d.LoweredAt != nil {
			out.LoweredAt = d.LoweredAt.Time
		}
	}

	return out
}

// desiredSize returns the requests and limits of all decisions.
func desiredSize(sizings []containerSizing) adoption.Size {
	out := adoption.Size{Containers: map[string]rightsize.Resources{}}
	for _, sizing := range sizings {
		if sizing.Request > 0 {
			setAmounts(out, sizing.container, sizing.Resource, sizing.Request, sizing.Limit)
		}
	}

	return out
}

// setAmounts sets a request and a limit, 0 for none, of a size.
func setAmounts(size adoption.Size, container string, r units.Resource, request, limit int64) {
	to := size.Containers[container]
	if r == units.CPU {
		to.CPURequest = positiveAmount[units.MilliCPU](request)
		to.CPULimit = positiveAmount[units.MilliCPU](limit)
	} else {
		to.MemoryRequest = positiveAmount[units.Bytes](request)
		to.MemoryLimit = positiveAmount[units.Bytes](limit)
	}

	size.Containers[container] = to
}

func positiveAmount[T ~int64](v int64) *T {
	if v <= 0 {
		return nil
	}

	out := T(v)
	return &out
}

// restoreUncontrolled adds requests of the pod template to a size for resources that were sized last and are controlled no longer.
func restoreUncontrolled(size adoption.Size, target workload.Workload, sizings []containerSizing, last adoption.Size) adoption.Size {
	for _, sizing := range sizings {
		if sizing.Request > 0 || requestAmount(last.Containers[sizing.container], sizing.Resource) == 0 {
			continue
		}

		c, _ := target.Container(sizing.container)
		now := profile.CurrentResources(c)
		if request := requestAmount(now, sizing.Resource); request > 0 {
			setAmounts(size, sizing.container, sizing.Resource, request, limitAmount(now, sizing.Resource))
		}
	}

	return size
}

// describe returns the reasons of all decisions, and the change of a horizontal autoscaler.
func describe(sizings []containerSizing, point scalePoint) string {
	var reasons []string
	for _, sizing := range sizings {
		if sizing.Reason != "" {
			reasons = append(reasons, fmt.Sprintf("%s of %s: %s", sizing.Resource, sizing.container, sizing.Reason))
		}
	}

	out := strings.Join(reasons, ". ") + "."
	if point.message != "" {
		out += " " + point.message
	}

	return out
}

// changesTemplate reports whether a decision differs from the requests of the pod template.
func changesTemplate(target workload.Workload, sizings []containerSizing) bool {
	return slices.ContainsFunc(sizings, func(sizing containerSizing) bool {
		c, _ := target.Container(sizing.container)
		return sizing.Request > 0 && sizing.Request != requestAmount(profile.CurrentResources(c), sizing.Resource)
	})
}

// adoptionReach returns how an update mode applies requests to pods.
func adoptionReach(mode autoscalingv1alpha1.UpdateMode) analysisv1alpha1.AdoptionReach {
	switch mode {
	case autoscalingv1alpha1.UpdateModeInitial:
		return analysisv1alpha1.AdoptionReachNewPods
	case autoscalingv1alpha1.UpdateModeRecreate:
		return analysisv1alpha1.AdoptionReachRecreate
	case autoscalingv1alpha1.UpdateModeAuto:
		return analysisv1alpha1.AdoptionReachInPlaceOrRecreate
	default:
		return analysisv1alpha1.AdoptionReachInPlace
	}
}
