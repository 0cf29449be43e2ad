// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"fmt"
	"strconv"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/scaling"
)

// number writes a value for people.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// ask is what a metric asks for, by the algorithm of the HPA, with the value and the target that it compares.
func ask(m *autoscalingv2.MetricSpec, v Value, t workload.Scale, tolerance scaling.Tolerance) (replicas int32, current, aim string, err error) {
	target, total := aimOf(m)
	switch {
	case target.AverageUtilization != nil:
		aim = percent(*target.AverageUtilization).text
		replicas, err = scaling.PerPod(v.Pods, t.Replicas, float64(*target.AverageUtilization)/100, tolerance)
		current = number(100 * share(v.Pods))
	case target.AverageValue != nil && total:
		aim, current = target.AverageValue.String(), number(v.Sum)
		replicas, err = scaling.Total(v.Sum, target.AverageValue.AsApproximateFloat64(), t.Counted, tolerance)
	case target.AverageValue != nil:
		aim = target.AverageValue.String()
		pods := make([]scaling.Pod, len(v.Pods))
		for i, p := range v.Pods {
			pods[i] = scaling.Pod{State: p.State, Use: p.Use, Request: 1}
		}
		replicas, err = scaling.PerPod(pods, t.Replicas, target.AverageValue.AsApproximateFloat64(), tolerance)
		current = number(share(pods))
	case target.Value != nil:
		aim, current = target.Value.String(), number(v.Sum)
		replicas, err = scaling.Ratio(v.Sum, target.Value.AsApproximateFloat64(), t.Replicas, v.Ready, tolerance)
	default:
		err = fmt.Errorf("the metric has no target: %w", scaling.ErrNoMetric)
	}
	return replicas, current, aim, err
}

// share is what ready pods use of what they request, as a fraction.
func share(pods []scaling.Pod) float64 {
	use, request := 0.0, 0.0
	for _, p := range pods {
		if p.State == scaling.Ready {
			use, request = use+p.Use, request+p.Request
		}
	}
	if request == 0 {
		return 0
	}
	return use / request
}
