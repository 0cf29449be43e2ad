// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/vertical"
)

// plan is what is to be written of one autoscaler.
type plan struct {
	// sizings are what was decided, by container of the target, in its order.
	sizings []containerSizing
	// estimatorFailures says which estimators have no answer although they should; empty where all have.
	estimatorFailures string
	// action says what becomes of the autoscaler's Recommendation, size what it shall say.
	action recommendationAction
	size   adoption.Size
	// scalePoint is what an autoscaler of the same pods needs together with that.
	scalePoint scalePoint
	// description says in words what changes.
	description  string
	conditions   []conditionState
	requeueAfter time.Duration
}

// containerSizing is the decision about one resource of one container.
type containerSizing struct {
	container string
	vertical.Sizing
}

// recommendationAction is what becomes of a Recommendation.
type recommendationAction int

const (
	keepRecommendation recommendationAction = iota
	deleteRecommendation
	writeRecommendation
)

// decide decides about one autoscaler. It changes nothing.
func decide(sc *namespaceSnapshot, s *autoscalerState) plan {
	p := plan{}
	if s.targetProblem != nil {
		p.conditions = []conditionState{{autoscalingv1alpha1.ConditionReady, false, s.targetProblem.reason, s.targetProblem.message}}
		if s.targetProblem.reason == reasonTargetNotFound {
			p.action = deleteRecommendation
			p.conditions = append(p.conditions, conditionState{conditionApplied, false, s.targetProblem.reason, s.targetProblem.message})
		}
		return p
	}
	before := s.lastSize()
	for _, c := range s.sizedContainers() {
		for _, r := range vertical.Resources() {
			one := containerSizing{c.Name, vertical.Decide(s.decisionInput(sc, c, r, before))}
			p.sizings = append(p.sizings, one)
			if one.RetryAfter > 0 && (p.requeueAfter == 0 || one.RetryAfter < p.requeueAfter) {
				p.requeueAfter = one.RetryAfter
			}
		}
	}
	p.estimatorFailures = s.estimatorFailures()
	acts := s.applies()
	switch {
	case !acts:
		p.action = deleteRecommendation
	default:
		p.size = desiredSize(p.sizings)
		s.restoreUncontrolled(&p, before)
		p.action = writeRecommendation
		if p.size.Empty() {
			p.action = keepRecommendation
		}
	}
	p.scalePoint = newScalePoint(sc, s, p.sizings)
	p.describe()
	p.conditions = targetConditions(s, &p)
	return p
}

// applies tells whether anything is to be brought to pods.
func (s *autoscalerState) applies() bool {
	return s.mode != autoscalingv1alpha1.UpdateModeOff && s.modeErr == nil && s.applyProblem == nil
}

// lastSize is what was decided last: the value of the autoscaler's own Recommendation. One that somebody made unreadable is as none.
func (s *autoscalerState) lastSize() adoption.Size {
	if s.recommendation == nil {
		return adoption.Size{}
	}
	size, err := targetsnapshot.DesiredSize(s.recommendation)
	if err != nil {
		return adoption.Size{}
	}
	return size
}

// decisionInput puts together what the decision about one resource needs.
func (s *autoscalerState) decisionInput(sc *namespaceSnapshot, c workload.Container, r vertical.Resource, before adoption.Size) vertical.Input {
	now := profile.CurrentResources(c)
	in := vertical.Input{
		Resource: r, Now: sc.now, Policy: containerPolicy(s.evpa, c.Name), Estimates: s.estimates[c.Name][r], LastChanges: s.lastChanges(c.Name, r),
	}
	in.Request, in.Limit = requestAmount(now, r), limitAmount(now, r)
	in.NodeCapacity = int64(sc.constraints.MaxCPU)
	if r == vertical.Memory {
		in.NodeCapacity = int64(sc.constraints.MaxMemory)
	}
	if in.Current = requestAmount(before.Containers[c.Name], r); in.Current == 0 {
		in.Current = in.Request
	}
	return in
}

func requestAmount(from rightsize.Resources, r vertical.Resource) int64 {
	if r == vertical.CPU {
		return amountOrZero(from.CPURequest)
	}
	return amountOrZero(from.MemoryRequest)
}

func limitAmount(from rightsize.Resources, r vertical.Resource) int64 {
	if r == vertical.CPU {
		return amountOrZero(from.CPULimit)
	}
	return amountOrZero(from.MemoryLimit)
}

func amountOrZero[T ~int64](v *T) int64 {
	if v == nil {
		return 0
	}
	return int64(*v)
}

// lastChanges is when a request was changed last, as the status says.
func (s *autoscalerState) lastChanges(container string, r vertical.Resource) vertical.ChangeTimes {
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

// desiredSize is what pods shall have.
func desiredSize(all []containerSizing) adoption.Size {
	out := adoption.Size{Containers: map[string]rightsize.Resources{}}
	for _, one := range all {
		if one.Request > 0 {
			setAmounts(out, one.container, one.Resource, one.Request, one.Limit)
		}
	}
	return out
}

// setAmounts puts a request and a limit, 0 for none, into a size.
func setAmounts(size adoption.Size, container string, r vertical.Resource, request, limit int64) {
	to := size.Containers[container]
	if r == vertical.CPU {
		to.CPURequest, to.CPULimit = positiveAmount[series.MilliCPU](request), positiveAmount[series.MilliCPU](limit)
	} else {
		to.MemoryRequest, to.MemoryLimit = positiveAmount[series.Bytes](request), positiveAmount[series.Bytes](limit)
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

// restoreUncontrolled adds what was set before and is not any more, as a resource that is no longer controlled, as the pod template has it.
func (s *autoscalerState) restoreUncontrolled(p *plan, before adoption.Size) {
	for _, one := range p.sizings {
		if one.Request > 0 || requestAmount(before.Containers[one.container], one.Resource) == 0 {
			continue
		}
		c, _ := s.target.Container(one.container)
		now := profile.CurrentResources(c)
		if request := requestAmount(now, one.Resource); request > 0 {
			setAmounts(p.size, one.container, one.Resource, request, limitAmount(now, one.Resource))
		}
	}
}

// estimatorFailures says of each estimator that fails why, once.
func (s *autoscalerState) estimatorFailures() string {
	var out []string
	for _, c := range s.sizedContainers() {
		for _, r := range vertical.Resources() {
			for _, e := range s.estimates[c.Name][r] {
				if text := e.Estimator + ": " + e.Failure; e.Failure != "" && !slices.Contains(out, text) {
					out = append(out, text)
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// describe says for each container what changes and why.
func (p *plan) describe() {
	var parts []string
	for _, one := range p.sizings {
		if one.Reason != "" {
			parts = append(parts, fmt.Sprintf("%s of %s: %s", one.Resource, one.container, one.Reason))
		}
	}
	p.description = strings.Join(parts, ". ") + "."
	if p.scalePoint.message != "" {
		p.description += " " + p.scalePoint.message
	}
}

// changes tells whether what is to be written differs from what the pod template asks for.
func (p *plan) changes(s *autoscalerState) bool {
	for _, one := range p.sizings {
		c, _ := s.target.Container(one.container)
		if now := requestAmount(profile.CurrentResources(c), one.Resource); one.Request > 0 && one.Request != now {
			return true
		}
	}
	return false
}

// adoptionReach is how the value of an update mode reaches pods.
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
