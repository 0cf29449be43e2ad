// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/vertical"
)

// maxDecisions is how many the status holds.
const maxDecisions = 200

// newStatus is the status that a plan leads to. What nothing can be said of keeps what was said last.
func newStatus(s *autoscalerState, p *plan, now time.Time) autoscalingv1alpha1.EffectiveVerticalPodAutoscalerStatus {
	out := *s.evpa.Status.DeepCopy()
	for _, c := range p.conditions {
		c.set(&out.Conditions, s.evpa.Generation, now)
	}
	if s.targetProblem != nil {
		return out
	}
	out.Recommendation = recommendedResources(s, p.sizings)
	out.ResourceEstimators = newEstimatorStatuses(s, now)
	out.Decisions = newDecisions(s, p.sizings)
	return out
}

func newQuantity(r vertical.Resource, v int64) resource.Quantity {
	if r == vertical.CPU {
		return *resource.NewMilliQuantity(v, resource.DecimalSI)
	}
	return *resource.NewQuantity(v, resource.BinarySI)
}

// setResource puts an amount into a list that may not be there yet; nothing for 0.
func setResource(list *corev1.ResourceList, r vertical.Resource, v int64) {
	if v <= 0 {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[corev1.ResourceName(r)] = newQuantity(r, v)
}

// recommendedResources are the targets and bounds of all containers.
func recommendedResources(s *autoscalerState, all []containerSizing) *autoscalingv1alpha1.RecommendedPodResources {
	out := &autoscalingv1alpha1.RecommendedPodResources{}
	for _, c := range s.sizedContainers() {
		one := autoscalingv1alpha1.RecommendedContainerResources{ContainerName: c.Name, Target: corev1.ResourceList{}}
		for _, d := range all {
			switch {
			case d.container != c.Name:
			case d.Target > 0:
				setResource(&one.Target, d.Resource, d.Target)
				setResource(&one.LowerBound, d.Resource, d.Lower)
				setResource(&one.UpperBound, d.Resource, d.Upper)
				setResource(&one.UncappedTarget, d.Resource, d.Uncapped)
			case containerPolicy(s.evpa, c.Name).Controls(d.Resource):
				keepPreviousResource(s, &one, corev1.ResourceName(d.Resource))
			}
		}
		if len(one.Target) > 0 {
			out.ContainerRecommendations = append(out.ContainerRecommendations, one)
		}
	}
	if len(out.ContainerRecommendations) == 0 {
		return nil
	}
	return out
}

// keepPreviousResource takes over what the status says of one resource.
func keepPreviousResource(s *autoscalerState, one *autoscalingv1alpha1.RecommendedContainerResources, name corev1.ResourceName) {
	if s.evpa.Status.Recommendation == nil {
		return
	}
	for _, last := range s.evpa.Status.Recommendation.ContainerRecommendations {
		if last.ContainerName != one.ContainerName {
			continue
		}
		for _, part := range []struct {
			to   *corev1.ResourceList
			from corev1.ResourceList
		}{{&one.Target, last.Target}, {&one.LowerBound, last.LowerBound}, {&one.UpperBound, last.UpperBound}, {&one.UncappedTarget, last.UncappedTarget}} {
			if q, said := part.from[name]; said {
				if *part.to == nil {
					*part.to = corev1.ResourceList{}
				}
				(*part.to)[name] = q
			}
		}
	}
}

// newDecisions are the decisions with their reasons. When something was changed is only noted where it is.
func newDecisions(s *autoscalerState, all []containerSizing) []autoscalingv1alpha1.VerticalDecision {
	var out []autoscalingv1alpha1.VerticalDecision
	for _, one := range all {
		moved := one.LastChanges
		if !s.applies() {
			moved = s.lastChanges(one.container, one.Resource)
		}
		d := autoscalingv1alpha1.VerticalDecision{
			ContainerName: one.container, Resource: corev1.ResourceName(one.Resource), Estimator: one.Estimator,
			Action: autoscalingv1alpha1.VerticalAction(one.Action), Reason: boundedMessage(one.Reason),
			RaisedAt: metaTime(moved.RaisedAt), LoweredAt: metaTime(moved.LoweredAt),
		}
		if one.Request > 0 {
			q := newQuantity(one.Resource, one.Request)
			d.Request = &q
		}
		if len(out) < maxDecisions {
			out = append(out, d)
		}
	}
	return out
}

func metaTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	out := metav1.NewTime(t.Truncate(time.Second))
	return &out
}

// newEstimatorStatuses are the answers by estimator. Those of somebody else are theirs, and stay as they are.
func newEstimatorStatuses(s *autoscalerState, now time.Time) []autoscalingv1alpha1.ResourceEstimatorStatus {
	last := map[string]autoscalingv1alpha1.ResourceEstimatorStatus{}
	ours := []string{vertical.TypePercentile, vertical.TypeOOM, vertical.TypeForecast, vertical.TypeExternal}
	var foreign []autoscalingv1alpha1.ResourceEstimatorStatus
	for _, e := range s.evpa.Status.ResourceEstimators {
		if slices.Contains(ours, e.Type) {
			last[e.Type] = e
		} else {
			foreign = append(foreign, e)
		}
	}
	var out []autoscalingv1alpha1.ResourceEstimatorStatus
	for _, name := range ours {
		answer, silent := s.estimatorResult(name)
		before, said := last[name]
		switch {
		case answer == nil && silent && said:
			out = append(out, before)
		case answer == nil:
		case said && equality.Semantic.DeepEqual(before.Recommendation, answer):
			out = append(out, before)
		default:
			at := metav1.NewTime(now.Truncate(time.Second))
			out = append(out, autoscalingv1alpha1.ResourceEstimatorStatus{Type: name, LastUpdateTime: &at, Recommendation: answer})
		}
	}
	return append(out, foreign...)
}

// estimatorResult is what one estimator says; silent tells that it has no answer although it should.
func (s *autoscalerState) estimatorResult(name string) (answer *autoscalingv1alpha1.RecommendedPodResources, silent bool) {
	out := &autoscalingv1alpha1.RecommendedPodResources{}
	for _, c := range s.sizedContainers() {
		one := autoscalingv1alpha1.RecommendedContainerResources{ContainerName: c.Name, Target: corev1.ResourceList{}}
		for _, r := range vertical.Resources() {
			for _, e := range s.estimates[c.Name][r] {
				switch {
				case e.Estimator != name:
				case e.Failure != "" || e.Pending != "":
					silent = true
				default:
					setResource(&one.Target, r, r.RoundUp(e.Value))
					setResource(&one.LowerBound, r, r.RoundUp(e.Lower))
					setResource(&one.UpperBound, r, r.RoundUp(e.Upper))
				}
			}
		}
		if len(one.Target) > 0 {
			out.ContainerRecommendations = append(out.ContainerRecommendations, one)
		}
	}
	if len(out.ContainerRecommendations) == 0 {
		return nil, silent
	}
	slices.SortStableFunc(out.ContainerRecommendations, func(a, b autoscalingv1alpha1.RecommendedContainerResources) int {
		return cmp.Compare(a.ContainerName, b.ContainerName)
	})
	return out, silent
}
