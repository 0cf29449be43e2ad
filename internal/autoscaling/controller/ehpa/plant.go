// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"fmt"
	"math"
	"strconv"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

const (
	// metricDelay is the age of the metrics that an HPA reads: metrics-server's resolution of 15 s and a window of the same length.
	// syncPeriod is that of the HPA controller.
	metricDelay = 30 * time.Second
	syncPeriod  = 15 * time.Second
	// defaultPodStartup is the time until a pod is ready without an annotation; maxPodStartup bounds the annotation.
	defaultPodStartup, maxPodStartup = time.Minute, time.Hour
	// defaultTargetFill is the assumed ratio of an average value to the capacity of a pod, which the spec does not contain.
	defaultTargetFill = 0.7
)

// scalingPlant returns the scaling properties of the target, for the ledger that rates the forecast of a metric.
func scalingPlant(
	ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, m *autoscalingv2.MetricSpec, perPod resource.Quantity,
) (*predictionv1alpha1.ScalingPlant, error) {
	startup, err := podStartup(ehpa)
	if err != nil {
		return nil, err
	}

	fill := defaultTargetFill
	if target, _ := metricTarget(m); target.AverageUtilization != nil {
		// With a target above the request, the target counts as the capacity.
		fill = math.Min(1, float64(*target.AverageUtilization)/100)
	}

	target := perPod.AsApproximateFloat64()
	if !(target > 0) {
		return nil, fmt.Errorf("a target of %s a pod is not positive", perPod.String())
	}

	return &predictionv1alpha1.ScalingPlant{
		PodCapacity:          apiNumber(target / fill),
		Target:               apiNumber(fill),
		LagSeconds:           int32((metricDelay + syncPeriod + startup) / time.Second),
		StabilizationSeconds: int32(scalingBehavior(ehpa.Spec.Behavior).Down.StabilizationWindow / time.Second),
	}, nil
}

func apiNumber(v float64) predictionv1alpha1.Number {
	const digits = 9
	return predictionv1alpha1.Number(strconv.FormatFloat(v, 'g', digits, 64))
}

// podStartup returns the time until a pod of the target is ready.
func podStartup(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) (time.Duration, error) {
	text, set := ehpa.Annotations[autoscalingv1alpha1.AnnotationPodStartup]
	if !set {
		return defaultPodStartup, nil
	}

	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxPodStartup {
		return 0, fmt.Errorf("annotation %s: %q: must be a duration from 0s to %s, such as 90s", autoscalingv1alpha1.AnnotationPodStartup, text, maxPodStartup)
	}

	return d, nil
}
