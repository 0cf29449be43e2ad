// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"math"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/units"
)

// TestFormatChange checks that the requests of all containers count, those without a recommendation as they are.
func TestFormatChange(t *testing.T) {
	frontend := []workload.Container{
		{Name: "app", Requests: workload.Resources{CPU: 1000, Memory: 384 << 20}}, {Name: "proxy", Requests: workload.Resources{CPU: 500, Memory: 100 << 20}},
	}
	target := func(container, cpu, memory string) autoscalingv1alpha1.RecommendedContainerResources {
		out := autoscalingv1alpha1.RecommendedContainerResources{ContainerName: container, Target: corev1.ResourceList{}}
		for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if text != "" {
				out.Target[name] = resource.MustParse(text)
			}
		}

		return out
	}

	for want, tc := range map[string]struct {
		containers []workload.Container
		targets    []autoscalingv1alpha1.RecommendedContainerResources
	}{
		"cpu 1500m, memory 484Mi → 265Mi":       {frontend, []autoscalingv1alpha1.RecommendedContainerResources{target("app", "1", "201Mi"), target("proxy", "500m", "64Mi")}},
		"cpu 1500m → 1278m, memory 484Mi":       {frontend, []autoscalingv1alpha1.RecommendedContainerResources{target("app", "778m", "")}},
		"cpu none → 200m, memory none":          {[]workload.Container{{Name: "app"}}, []autoscalingv1alpha1.RecommendedContainerResources{target("app", "200m", "")}},
		"cpu 1500m → 1250m, memory 484Mi → 1Gi": {frontend, []autoscalingv1alpha1.RecommendedContainerResources{target("app", "750m", "924Mi")}},
	} {
		if got := formatChange(tc.containers, &autoscalingv1alpha1.RecommendedPodResources{ContainerRecommendations: tc.targets}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}

	if got := formatChange(frontend, nil); got != "" {
		t.Errorf("formatChange without a recommendation = %q, want nothing", got)
	}

	huge := []workload.Container{{Name: "app", Requests: workload.Resources{CPU: math.MaxInt64 - 1, Memory: units.Bytes(math.MaxInt64) - 1}}}
	if got := formatChange(huge, &autoscalingv1alpha1.RecommendedPodResources{ContainerRecommendations: []autoscalingv1alpha1.RecommendedContainerResources{
		target("app", "1m", "9223372036854775801"),
	}}); utf8.RuneCountInString(got) != maxChange {
		t.Errorf("%d characters, want %d: the API server would reject the status", utf8.RuneCountInString(got), maxChange)
	}
}
