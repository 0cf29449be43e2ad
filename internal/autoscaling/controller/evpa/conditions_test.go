// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/vertical"
)

// TestSumOfTargets checks that the requests of a pod are the sums over its containers, in the format of quantities.
func TestSumOfTargets(t *testing.T) {
	container := func(requests corev1.ResourceList) autoscalingv1alpha1.RecommendedContainerResources {
		return autoscalingv1alpha1.RecommendedContainerResources{Target: requests}
	}
	of := &autoscalingv1alpha1.RecommendedPodResources{ContainerRecommendations: []autoscalingv1alpha1.RecommendedContainerResources{
		container(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("202Mi")}),
		container(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}),
	}}
	sum := sumOfTargets(of)
	if cpu, memory := sum.Cpu().String(), sum.Memory().String(); cpu != "1500m" || memory != "202Mi" || len(sum) != 2 {
		t.Errorf("cpu %s, memory %s", cpu, memory)
	}
	if first := of.ContainerRecommendations[0].Target.Cpu().String(); first != "1" {
		t.Errorf("the target of the first container became %s", first)
	}
	if sum := sumOfTargets(nil); sum != nil {
		t.Errorf("%v for no recommendation", sum)
	}
}

// TestAppliedWhileHeld checks that requests that stay as they are do not count as applied, with the reason of each, unless an adoption is
// under way or the requests are those needed.
func TestAppliedWhileHeld(t *testing.T) {
	size := func(r series.Resource, action vertical.Action, target, request int64) containerSizing {
		return containerSizing{"app", vertical.Sizing{Resource: r, Action: action, Target: target, Request: request, Reason: "that is 80 % of it"}}
	}
	held := size(series.CPU, vertical.Hold, 400, 500)
	for name, c := range map[string]struct {
		phase   adoption.Phase
		sizings []containerSizing
		want    string
	}{
		"both held":  {adoption.Untouched, []containerSizing{held, size(series.Memory, vertical.Hold, 400<<20, 500<<20)}, "RequestsHeld: cpu of app stays 500m while 400m is needed: that is 80 % of it; memory of app stays 500Mi"},
		"rested":     {adoption.Resting, []containerSizing{held}, "RequestsHeld: cpu of app"},
		"one raised": {adoption.Untouched, []containerSizing{held, size(series.Memory, vertical.Raise, 2, 2)}, "Adopted: as recommended; cpu of app stays 500m while 400m"},
		"one equal":  {adoption.Resting, []containerSizing{held, size(series.Memory, vertical.Hold, 2, 2)}, "Resting: as recommended; cpu of app stays 500m while 400m"},
		"one only":   {adoption.Resting, []containerSizing{held, size(series.Memory, vertical.None, 0, 0)}, "RequestsHeld: cpu of app"},
		"no answer":  {adoption.Resting, []containerSizing{size(series.CPU, vertical.Hold, 0, 500)}, "RequestsHeld: cpu of app stays: that is 80 % of it"},
		"as needed":  {adoption.Resting, []containerSizing{size(series.CPU, vertical.Hold, 500, 500)}, "Resting: as recommended"},
		"under way":  {adoption.Lowering, []containerSizing{held}, "Lowering: as recommended"},
		"no sizes":   {adoption.Untouched, nil, "Adopted: as recommended"},
	} {
		s := autoscalerState{mode: autoscalingv1alpha1.UpdateModeAuto, recommendation: &analysisv1alpha1.Recommendation{}}
		s.recommendation.Status.Adoption = &analysisv1alpha1.AdoptionStatus{Phase: string(c.phase), Message: "as recommended"}
		got := appliedCondition(s, c.sizings, scalePoint{})
		if text := got.Reason + ": " + got.Message; !strings.HasPrefix(text, c.want) || got.OK == (got.Reason == reasonHeld) {
			t.Errorf("%s: %v %s, want %s", name, got.OK, text, c.want)
		}
	}
}
