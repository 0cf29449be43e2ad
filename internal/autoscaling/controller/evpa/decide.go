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
	shared "crane.io/crane/internal/adoption/targetsnapshot"
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
	sizings []sized
	// failing says which estimators have no answer although they should; empty where all have.
	failing string
	// verb says what becomes of the autoscaler's Recommendation, size what it shall say.
	verb verb
	size adoption.Size
	// point is what an autoscaler of the same pods needs together with that.
	point scalePoint
	// description says in words what changes.
	description string
	conditions  []state
	again       time.Duration
}

// sized is the decision about one resource of one container.
type sized struct {
	container string
	vertical.Sizing
}

// verb is what becomes of a Recommendation.
type verb int

const (
	leave verb = iota
	remove
	write
)

// decide decides about one autoscaler. It changes nothing.
func decide(sc *scene, s *subject) plan {
	p := plan{}
	if s.refused != nil {
		p.conditions = []state{{autoscalingv1alpha1.ConditionReady, false, s.refused.reason, s.refused.message}}
		if s.refused.reason == reasonTargetNotFound {
			p.verb = remove
			p.conditions = append(p.conditions, state{conditionApplied, false, s.refused.reason, s.refused.message})
		}
		return p
	}
	before := s.before()
	for _, c := range s.sized() {
		for _, r := range vertical.Resources() {
			one := sized{c.Name, vertical.Decide(s.input(sc, c, r, before))}
			p.sizings = append(p.sizings, one)
			if one.Again > 0 && (p.again == 0 || one.Again < p.again) {
				p.again = one.Again
			}
		}
	}
	p.failing = s.failing()
	acts := s.acts()
	switch {
	case !acts:
		p.verb = remove
	default:
		p.size = sizeOf(p.sizings)
		s.giveBack(&p, before)
		p.verb = write
		if p.size.Empty() {
			p.verb = leave
		}
	}
	p.point = scalePointOf(sc, s, p.sizings)
	p.describe()
	p.conditions = conditionsOf(s, &p)
	return p
}

// acts tells whether anything is to be brought to pods.
func (s *subject) acts() bool {
	return s.mode != autoscalingv1alpha1.UpdateModeOff && s.modeErr == nil && s.barred == nil
}

// before is what was decided last: the value of the autoscaler's own Recommendation. One that somebody made unreadable is as none.
func (s *subject) before() adoption.Size {
	if s.own == nil {
		return adoption.Size{}
	}
	size, err := shared.Wanted(s.own)
	if err != nil {
		return adoption.Size{}
	}
	return size
}

// input puts together what the decision about one resource needs.
func (s *subject) input(sc *scene, c workload.Container, r vertical.Resource, before adoption.Size) vertical.Input {
	now := profile.Current(c)
	in := vertical.Input{
		Resource: r, Now: sc.now, Policy: policyOf(s.evpa, c.Name), Estimates: s.estimates[c.Name][r], Moved: s.moved(c.Name, r),
	}
	in.Request, in.Limit = requestOf(now, r), limitOf(now, r)
	in.Node = int64(sc.constraints.MaxCPU)
	if r == vertical.Memory {
		in.Node = int64(sc.constraints.MaxMemory)
	}
	if in.Present = requestOf(before.Containers[c.Name], r); in.Present == 0 {
		in.Present = in.Request
	}
	return in
}

func requestOf(from rightsize.Resources, r vertical.Resource) int64 {
	if r == vertical.CPU {
		return value(from.CPURequest)
	}
	return value(from.MemoryRequest)
}

func limitOf(from rightsize.Resources, r vertical.Resource) int64 {
	if r == vertical.CPU {
		return value(from.CPULimit)
	}
	return value(from.MemoryLimit)
}

func value[T ~int64](v *T) int64 {
	if v == nil {
		return 0
	}
	return int64(*v)
}

// moved is when a request was changed last, as the status says.
func (s *subject) moved(container string, r vertical.Resource) vertical.Moves {
	var out vertical.Moves
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

// sizeOf is what pods shall have.
func sizeOf(all []sized) adoption.Size {
	out := adoption.Size{Containers: map[string]rightsize.Resources{}}
	for _, one := range all {
		if one.Request > 0 {
			set(out, one.container, one.Resource, one.Request, one.Limit)
		}
	}
	return out
}

// set puts a request and a limit, 0 for none, into a size.
func set(size adoption.Size, container string, r vertical.Resource, request, limit int64) {
	to := size.Containers[container]
	if r == vertical.CPU {
		to.CPURequest, to.CPULimit = pointer[series.MilliCPU](request), pointer[series.MilliCPU](limit)
	} else {
		to.MemoryRequest, to.MemoryLimit = pointer[series.Bytes](request), pointer[series.Bytes](limit)
	}
	size.Containers[container] = to
}

func pointer[T ~int64](v int64) *T {
	if v <= 0 {
		return nil
	}
	out := T(v)
	return &out
}

// giveBack adds what was set before and is not any more, as a resource that is no longer controlled, as the pod template has it.
func (s *subject) giveBack(p *plan, before adoption.Size) {
	for _, one := range p.sizings {
		if one.Request > 0 || requestOf(before.Containers[one.container], one.Resource) == 0 {
			continue
		}
		c, _ := s.target.Container(one.container)
		now := profile.Current(c)
		if request := requestOf(now, one.Resource); request > 0 {
			set(p.size, one.container, one.Resource, request, limitOf(now, one.Resource))
		}
	}
}

// failing says of each estimator that fails why, once.
func (s *subject) failing() string {
	var out []string
	for _, c := range s.sized() {
		for _, r := range vertical.Resources() {
			for _, e := range s.estimates[c.Name][r] {
				if text := e.Estimator + ": " + e.Failed; e.Failed != "" && !slices.Contains(out, text) {
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
	if p.point.text != "" {
		p.description += " " + p.point.text
	}
}

// changes tells whether what is to be written differs from what the pod template asks for.
func (p *plan) changes(s *subject) bool {
	for _, one := range p.sizings {
		c, _ := s.target.Container(one.container)
		if now := requestOf(profile.Current(c), one.Resource); one.Request > 0 && one.Request != now {
			return true
		}
	}
	return false
}

// reachOf is how the value of an update mode reaches pods.
func reachOf(mode autoscalingv1alpha1.UpdateMode) analysisv1alpha1.AdoptionReach {
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
