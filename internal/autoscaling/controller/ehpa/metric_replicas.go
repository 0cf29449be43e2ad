// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"fmt"
	"strconv"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"crane.io/crane/internal/autoscaling/hpametrics"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/scaling"
)

// formatNumber formats a value with six significant digits.
func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// replicasFor returns the replicas that a metric asks for by the HPA algorithm, with the current value and the target as text.
func replicasFor(m *autoscalingv2.MetricSpec, v hpametrics.Value, t workload.Scale, tolerance scaling.Tolerance) (replicas int32, current, text string, err error) {
	target, total := metricTarget(m)
	switch {
	case target.AverageUtilization != nil:
		text = percentAmount(*target.AverageUtilization).text
		replicas, err = scaling.ReplicasForPods(v.Pods, t.Replicas, float64(*target.AverageUtilization)/100, tolerance)
		current = formatNumber(100 * usageRatio(v.Pods))

	case target.AverageValue != nil && total:
		text = target.AverageValue.String()
		current = formatNumber(v.Sum)
		replicas, err = scaling.ReplicasForTotal(v.Sum, target.AverageValue.AsApproximateFloat64(), t.CurrentReplicas, tolerance)

	case target.AverageValue != nil:
		text = target.AverageValue.String()
		pods := make([]scaling.Pod, len(v.Pods))
		for i, p := range v.Pods {
			pods[i] = scaling.Pod{State: p.State, Usage: p.Usage, Request: 1}
		}

		replicas, err = scaling.ReplicasForPods(pods, t.Replicas, target.AverageValue.AsApproximateFloat64(), tolerance)
		current = formatNumber(usageRatio(pods))

	case target.Value != nil:
		text = target.Value.String()
		current = formatNumber(v.Sum)
		replicas, err = scaling.ReplicasForValue(v.Sum, target.Value.AsApproximateFloat64(), t.Replicas, v.Ready, tolerance)

	default:
		err = fmt.Errorf("the metric has no target: %w", scaling.ErrNoMetric)
	}

	return replicas, current, text, err
}

// usageRatio returns the usage of the ready pods as a fraction of their requests.
func usageRatio(pods []scaling.Pod) float64 {
	use, request := 0.0, 0.0
	for _, p := range pods {
		if p.State == scaling.Ready {
			use += p.Usage
			request += p.Request
		}
	}

	if request == 0 {
		return 0
	}

	return use / request
}
