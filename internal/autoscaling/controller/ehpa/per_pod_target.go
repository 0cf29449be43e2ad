// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"errors"
	"fmt"
	"math"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// perPodTarget returns the target value of one pod. The error is the reason why a forecast of the metric determines no replicas.
func perPodTarget(requests podRequests, m *autoscalingv2.MetricSpec) (out resource.Quantity, err error) {
	switch m.Type {
	case autoscalingv2.ResourceMetricSourceType:
		return resourcePerPodTarget(requests, m.Resource.Name, "", m.Resource.Target)
	case autoscalingv2.ContainerResourceMetricSourceType:
		return resourcePerPodTarget(requests, m.ContainerResource.Name, m.ContainerResource.Container, m.ContainerResource.Target)
	case autoscalingv2.PodsMetricSourceType:
		if m.Pods.Target.AverageValue != nil {
			return *m.Pods.Target.AverageValue, nil
		}

	case autoscalingv2.ExternalMetricSourceType:
		if m.External.Target.AverageValue != nil {
			return *m.External.Target.AverageValue, nil
		}

		// A plain value determines the factor by which replicas grow. A forecast does not fall when they do, so they would grow for ever.
		return out, errors.New("a target of type Value cannot be used with a forecast: use averageValue")
	}

	return out, fmt.Errorf("a metric of type %s has no target for one pod", m.Type)
}

// resourcePerPodTarget returns the target of a resource metric for one pod, in cores or bytes: the average value, or the utilization of
// what the pods request. An empty container selects all.
func resourcePerPodTarget(
	requests podRequests, name corev1.ResourceName, container string, target autoscalingv2.MetricTarget,
) (resource.Quantity, error) {
	if target.AverageValue != nil {
		return *target.AverageValue, nil
	}

	if target.AverageUtilization == nil {
		return resource.Quantity{}, errors.New("the target of the metric has neither averageValue nor averageUtilization")
	}

	if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
		return resource.Quantity{}, fmt.Errorf("the utilization of %s cannot be forecast: use averageValue", name)
	}

	request, ok := requests[requestKey{name, container}]
	if !ok {
		return resource.Quantity{}, errors.New("what the pods request is unknown")
	}

	if request.err != nil {
		return resource.Quantity{}, request.err
	}

	amount := request.mean * float64(*target.AverageUtilization) / 100
	if name == corev1.ResourceMemory {
		return *resource.NewQuantity(max(1, int64(math.Round(amount))), resource.BinarySI), nil
	}

	return *resource.NewMilliQuantity(max(1, int64(math.Round(amount*1000))), resource.DecimalSI), nil
}
