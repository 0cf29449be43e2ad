// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// VerticalSize returns the requests that a vertical autoscaler recommends; empty for none.
func VerticalSize(evpa *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) adoption.Size {
	out := adoption.Size{Containers: map[string]rightsize.Resources{}}
	if evpa.Status.Recommendation == nil {
		return out
	}

	for _, c := range evpa.Status.Recommendation.ContainerRecommendations {
		var size rightsize.Resources
		if cpu := units.MilliCPU(c.Target.Cpu().MilliValue()); cpu > 0 {
			size.CPURequest = &cpu
		}
		if memory := units.Bytes(c.Target.Memory().Value()); memory > 0 {
			size.MemoryRequest = &memory
		}

		out.Containers[c.ContainerName] = size
	}

	return out
}

// DescribeDifference describes the requests of another source of the size of a workload that differ from those of this one by
// more than 5 %, and why; empty if none differs. name is that of the other source; vertical is the one of the two that is a
// vertical autoscaler.
func DescribeDifference(name string, other, recommended adoption.Size, vertical *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) string {
	var parts []string
	for _, container := range slices.Sorted(maps.Keys(recommended.Containers)) {
		a := other.Containers[container]
		b := recommended.Containers[container]
		if differ(a.CPURequest, b.CPURequest) {
			parts = append(parts, fmt.Sprintf("cpu of %s %s (here %s)", container, units.FormatCPU(*a.CPURequest), units.FormatCPU(*b.CPURequest)))
		}
		if differ(a.MemoryRequest, b.MemoryRequest) {
			parts = append(parts, fmt.Sprintf("memory of %s %s (here %s)", container, units.FormatMemory(*a.MemoryRequest), units.FormatMemory(*b.MemoryRequest)))
		}
	}

	if len(parts) == 0 {
		return ""
	}

	why := "the rule has settings of its own, or the two were evaluated at different times"
	switch {
	case len(vertical.Spec.ResourceEstimators) > 0:
		why = "the vertical autoscaler has estimators of its own"
	case vertical.Spec.ResourcePolicy != nil:
		why = "the vertical autoscaler has bounds of its own"
	}

	return fmt.Sprintf("%s recommends %s, because %s", name, strings.Join(parts, ", "), why)
}

// differ reports whether both amounts are known and differ by more than 5 %.
func differ[T ~int64](a, b *T) bool {
	const tolerance = 0.05
	return a != nil && b != nil && math.Abs(float64(*a-*b)) > tolerance*float64(max(*a, *b))
}
