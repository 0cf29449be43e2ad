// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// UtilizationTarget is a share of the request at which an autoscaler scales.
type UtilizationTarget struct {
	Resource corev1.ResourceName
	// Container is empty if the requests of the whole pod count.
	Container string
	Percent   int32
}

// UtilizationTargets returns the targets of an autoscaler for CPU and memory, in its order.
func (a Autoscaler) UtilizationTargets() []UtilizationTarget {
	var out []UtilizationTarget
	for _, m := range a.Metrics {
		var t UtilizationTarget
		var target autoscalingv2.MetricTarget
		switch {
		case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil:
			t.Resource, target = m.Resource.Name, m.Resource.Target
		case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil:
			t.Resource, t.Container, target = m.ContainerResource.Name, m.ContainerResource.Container, m.ContainerResource.Target
		}
		if target.AverageUtilization == nil || *target.AverageUtilization <= 0 || t.Resource != corev1.ResourceCPU && t.Resource != corev1.ResourceMemory {
			continue
		}
		t.Percent = *target.AverageUtilization
		out = append(out, t)
	}
	return out
}

// UtilizationAutoscaler returns the autoscaler that scales a workload by the utilisation of its requests, and its targets; there
// are none without one. Several autoscalers of one workload count as one that Crane does not own.
func (c Constraints) UtilizationAutoscaler(ref Ref) (Autoscaler, []UtilizationTarget) {
	var out Autoscaler
	var all []UtilizationTarget
	for i, a := range c.Autoscalers(ref) {
		if targets := a.UtilizationTargets(); len(targets) > 0 {
			all = append(all, targets...)
			if out = a; i > 0 {
				out.Owner = ""
			}
		}
	}
	return out, all
}
