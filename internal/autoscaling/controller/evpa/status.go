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
	"crane.io/crane/internal/kube/condition"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/units"
	"crane.io/crane/pkg/vertical"
)

// maxDecisions bounds the decisions in the status.
const maxDecisions = 200

// maxChange is the maximum length of the change in the status.
const maxChange = 60

// newStatus returns the status of a plan. Fields that the plan cannot determine keep their values.
func newStatus(s autoscalerState, p plan, now time.Time) autoscalingv1alpha1.EffectiveVerticalPodAutoscalerStatus {
	out := *s.evpa.Status.DeepCopy()
	for _, c := range p.conditions {
		c.Set(&out.Conditions, s.evpa.Generation, now)
	}

	if s.targetProblem != nil {
		return out
	}

	out.Recommendation = recommendedResources(s, p.sizings)
	out.Change = formatChange(s.sizedContainers(), out.Recommendation)
	out.ResourceEstimators = newEstimatorStatuses(s, now)
	out.Decisions = newDecisions(s, p.sizings)

	return out
}

// formatChange compares the requests of a pod by its template with the recommended ones; a container without a recommendation keeps its
// request. It is empty without a recommendation.
func formatChange(containers []workload.Container, recommended *autoscalingv1alpha1.RecommendedPodResources) string {
	if recommended == nil {
		return ""
	}

	targets := map[string]corev1.ResourceList{}
	for _, c := range recommended.ContainerRecommendations {
		targets[c.ContainerName] = c.Target
	}

	var before, after workload.Resources
	for _, c := range containers {
		// A container without a recommendation keeps its requests.
		next := c.Requests
		if cpu, ok := targets[c.Name][corev1.ResourceCPU]; ok {
			next.CPU = units.MilliCPU(cpu.MilliValue())
		}
		if memory, ok := targets[c.Name][corev1.ResourceMemory]; ok {
			next.Memory = units.Bytes(memory.Value())
		}

		before.CPU += c.Requests.CPU
		before.Memory += c.Requests.Memory
		after.CPU += next.CPU
		after.Memory += next.Memory
	}

	text := []rune(changeOf("cpu", before.CPU, after.CPU, units.FormatCPU) + ", " + changeOf("memory", before.Memory, after.Memory, units.FormatMemory))
	if len(text) > maxChange {
		text = append(text[:maxChange-1], '…')
	}

	return string(text)
}

func changeOf[V comparable](name string, from, to V, format func(V) string) string {
	var none V
	text := func(v V) string {
		if v == none {
			return "none"
		}

		return format(v)
	}

	if from == to {
		return name + " " + text(to)
	}

	return name + " " + text(from) + " → " + text(to)
}

func newQuantity(r units.Resource, v int64) resource.Quantity {
	if r == units.CPU {
		return *resource.NewMilliQuantity(v, resource.DecimalSI)
	}

	return *resource.NewQuantity(v, resource.BinarySI)
}

// setResource sets an amount above 0 in a list, which it creates if need be.
func setResource(list *corev1.ResourceList, r units.Resource, v int64) {
	if v <= 0 {
		return
	}

	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[corev1.ResourceName(r)] = newQuantity(r, v)
}

// recommendedResources returns the targets and bounds of all containers, nil for none.
func recommendedResources(s autoscalerState, sizings []containerSizing) *autoscalingv1alpha1.RecommendedPodResources {
	out := &autoscalingv1alpha1.RecommendedPodResources{}
	for _, c := range s.sizedContainers() {
		container := autoscalingv1alpha1.RecommendedContainerResources{ContainerName: c.Name, Target: corev1.ResourceList{}}
		for _, d := range sizings {
			switch {
			case d.container != c.Name:
			case d.Target > 0:
				setResource(&container.Target, d.Resource, d.Target)
				setResource(&container.LowerBound, d.Resource, d.Lower)
				setResource(&container.UpperBound, d.Resource, d.Upper)
				setResource(&container.UncappedTarget, d.Resource, d.Uncapped)

			case containerPolicy(s.evpa, c.Name).Controls(d.Resource):
				keepPreviousResource(s, &container, corev1.ResourceName(d.Resource))
			}
		}

		if len(container.Target) > 0 {
			out.ContainerRecommendations = append(out.ContainerRecommendations, container)
		}
	}

	if len(out.ContainerRecommendations) == 0 {
		return nil
	}

	return out
}

// keepPreviousResource copies the amounts of one resource from the previous status.
func keepPreviousResource(s autoscalerState, container *autoscalingv1alpha1.RecommendedContainerResources, name corev1.ResourceName) {
	if s.evpa.Status.Recommendation == nil {
		return
	}

	for _, last := range s.evpa.Status.Recommendation.ContainerRecommendations {
		if last.ContainerName != container.ContainerName {
			continue
		}

		for _, part := range []struct {
			to   *corev1.ResourceList
			from corev1.ResourceList
		}{{&container.Target, last.Target}, {&container.LowerBound, last.LowerBound}, {&container.UpperBound, last.UpperBound}, {&container.UncappedTarget, last.UncappedTarget}} {
			if q, ok := part.from[name]; ok {
				if *part.to == nil {
					*part.to = corev1.ResourceList{}
				}
				(*part.to)[name] = q
			}
		}
	}
}

// newDecisions returns the decisions with their reasons. The times of changes are recorded only where requests are applied.
func newDecisions(s autoscalerState, sizings []containerSizing) []autoscalingv1alpha1.VerticalDecision {
	var out []autoscalingv1alpha1.VerticalDecision
	for _, sizing := range sizings[:min(len(sizings), maxDecisions)] {
		changes := sizing.LastChanges
		if !s.applies() {
			changes = s.lastChanges(sizing.container, sizing.Resource)
		}

		d := autoscalingv1alpha1.VerticalDecision{
			ContainerName: sizing.container,
			Resource:      corev1.ResourceName(sizing.Resource),
			Estimator:     sizing.Estimator,
			Action:        autoscalingv1alpha1.VerticalAction(sizing.Action),
			Reason:        condition.Message(sizing.Reason),
			RaisedAt:      metaTime(changes.RaisedAt),
			LoweredAt:     metaTime(changes.LoweredAt),
		}

		if sizing.Request > 0 {
			d.Request = new(newQuantity(sizing.Resource, sizing.Request))
		}
		out = append(out, d)
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

// newEstimatorStatuses returns the estimates by estimator. Those of estimators outside of Crane stay unchanged.
func newEstimatorStatuses(s autoscalerState, now time.Time) []autoscalingv1alpha1.ResourceEstimatorStatus {
	last := map[string]autoscalingv1alpha1.ResourceEstimatorStatus{}
	var foreign []autoscalingv1alpha1.ResourceEstimatorStatus
	for _, e := range s.evpa.Status.ResourceEstimators {
		if slices.Contains(ownEstimators(), e.Type) {
			last[e.Type] = e
		} else {
			foreign = append(foreign, e)
		}
	}

	var out []autoscalingv1alpha1.ResourceEstimatorStatus
	for _, name := range ownEstimators() {
		answer, missing := s.estimatorResult(name)
		before, ok := last[name]

		// An answer that did not change keeps its time, and a failed estimator the last answer.
		switch {
		case answer == nil && missing && ok:
			out = append(out, before)
		case answer == nil:
		case ok && equality.Semantic.DeepEqual(before.Recommendation, answer):
			out = append(out, before)
		default:
			at := metav1.NewTime(now.Truncate(time.Second))
			out = append(out, autoscalingv1alpha1.ResourceEstimatorStatus{Type: name, LastUpdateTime: &at, Recommendation: answer})
		}
	}

	return append(out, foreign...)
}

// estimatorResult returns the estimates of one estimator, nil for none. missing reports that some are missing.
func (s autoscalerState) estimatorResult(name string) (answer *autoscalingv1alpha1.RecommendedPodResources, missing bool) {
	out := &autoscalingv1alpha1.RecommendedPodResources{}
	for _, c := range s.sizedContainers() {
		container := autoscalingv1alpha1.RecommendedContainerResources{ContainerName: c.Name, Target: corev1.ResourceList{}}

		for _, r := range vertical.Resources() {
			for _, e := range s.estimates[c.Name][r] {
				switch {
				case e.Estimator != name:
				case e.Failure != "" || e.Pending != "":
					missing = true
				default:
					setResource(&container.Target, r, vertical.RoundUp(r, e.Value))
					setResource(&container.LowerBound, r, vertical.RoundUp(r, e.Lower))
					setResource(&container.UpperBound, r, vertical.RoundUp(r, e.Upper))
				}
			}
		}

		if len(container.Target) > 0 {
			out.ContainerRecommendations = append(out.ContainerRecommendations, container)
		}
	}

	if len(out.ContainerRecommendations) == 0 {
		return nil, missing
	}

	slices.SortStableFunc(out.ContainerRecommendations, func(a, b autoscalingv1alpha1.RecommendedContainerResources) int {
		return cmp.Compare(a.ContainerName, b.ContainerName)
	})

	return out, missing
}
