// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"cmp"
	"fmt"
	"strconv"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"crane.io/crane/internal/autoscaling/hpametrics"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/scaling"
)

// formatNumber formats a value with six significant digits.
func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// formatThousandths formats a value that is given in thousandths.
func formatThousandths(v int64) string { return formatNumber(float64(v) / 1000) }

// replicasFor returns the replicas that a metric asks for by the HPA algorithm, with the current value and the target as text.
func replicasFor(m *autoscalingv2.MetricSpec, v hpametrics.Value, t workload.Scale, tolerance scaling.Tolerance) (replicas int32, current, text string, err error) {
	target, total := metricTarget(m)
	switch {
	case target.AverageUtilization != nil:
		text = percentAmount(*target.AverageUtilization).text
		current = formatNumber(100 * usageRatio(v.Pods))
		replicas, err = scaling.ReplicasForUtilization(v.Pods, t.Replicas, *target.AverageUtilization, tolerance)
		err = cmp.Or(v.RequestErr, err)

	case target.AverageValue != nil && total:
		text = target.AverageValue.String()
		current = formatThousandths(v.Sum)
		replicas, err = scaling.ReplicasForTotal(v.Sum, target.AverageValue.MilliValue(), t.CurrentReplicas, tolerance)

	case target.AverageValue != nil:
		text = target.AverageValue.String()
		current = formatThousandths(meanUsage(v.Pods))
		replicas, err = scaling.ReplicasForAverage(v.Pods, t.Replicas, target.AverageValue.MilliValue(), tolerance)

	case target.Value != nil:
		text = target.Value.String()
		current = formatThousandths(v.Sum)
		replicas, err = scaling.ReplicasForValue(v.Sum, target.Value.MilliValue(), t.Replicas, v.Ready, tolerance)

	default:
		err = fmt.Errorf("the metric has no target: %w", scaling.ErrNoMetric)
	}

	return replicas, current, text, err
}

// usageRatio returns the usage of the ready pods as a fraction of their requests.
func usageRatio(pods []scaling.Pod) float64 {
	var use, request int64
	for _, p := range pods {
		if p.State == scaling.Ready {
			use += p.Usage
			request += p.Request
		}
	}

	if request == 0 {
		return 0
	}

	return float64(use) / float64(request)
}

// meanUsage returns the mean usage of the pods with a sample, in thousandths.
func meanUsage(pods []scaling.Pod) int64 {
	var use, count int64
	for _, p := range pods {
		if p.State == scaling.Ready || p.State == scaling.Unlisted {
			use += p.Usage
			count++
		}
	}

	if count == 0 {
		return 0
	}

	return use / count
}
