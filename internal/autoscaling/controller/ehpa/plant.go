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
	// metricDelay is how old what an HPA sees is: metrics-server's resolution of 15 s and as long a window again; syncPeriod is the
	// HPA controller's.
	metricDelay, syncPeriod = 30 * time.Second, 15 * time.Second
	// usualStartup is how long a pod takes to be ready where nobody says; longestStartup bounds what may be said.
	usualStartup, longestStartup = time.Minute, time.Hour
	// usualTarget is the share of a pod's capacity that an average value is taken for: it does not say what a pod can carry.
	usualTarget = 0.7
)

// plantOf says what scales with a metric, for the account of what its forecast is worth. The error is a sentence for the user.
func plantOf(
	ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, m *autoscalingv2.MetricSpec, perPod resource.Quantity,
) (*predictionv1alpha1.ScalingPlant, error) {
	startup, err := startupOf(ehpa)
	if err != nil {
		return nil, err
	}
	target := usualTarget
	if aim, _ := aimOf(m); aim.AverageUtilization != nil {
		// A pod that is to use more than it requests carries what it is to use.
		target = math.Min(1, float64(*aim.AverageUtilization)/100)
	}
	aimed := perPod.AsApproximateFloat64()
	if !(aimed > 0) {
		return nil, fmt.Errorf("a target of %s a pod says nothing of replicas", perPod.String())
	}
	return &predictionv1alpha1.ScalingPlant{
		PodCapacity: decimal(aimed / target), Target: decimal(target),
		LagSeconds:           int32((metricDelay + syncPeriod + startup) / time.Second),
		StabilizationSeconds: int32(behaviorFor(ehpa.Spec.Behavior).Down.Stabilisation / time.Second),
	}, nil
}

func decimal(v float64) predictionv1alpha1.Number {
	const digits = 9
	return predictionv1alpha1.Number(strconv.FormatFloat(v, 'g', digits, 64))
}

// startupOf is how long a pod of the target takes to be ready.
func startupOf(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) (time.Duration, error) {
	text, said := ehpa.Annotations[autoscalingv1alpha1.AnnotationPodStartup]
	if !said {
		return usualStartup, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > longestStartup {
		return 0, fmt.Errorf("annotation %s: %q: want a duration from 0s to %s, such as 90s", autoscalingv1alpha1.AnnotationPodStartup, text, longestStartup)
	}
	return d, nil
}

// plantBefore is what was said of a metric before.
func plantBefore(tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string) *predictionv1alpha1.ScalingPlant {
	if tsp == nil {
		return nil
	}
	for i := range tsp.Spec.PredictionMetrics {
		if m := &tsp.Spec.PredictionMetrics[i]; m.ResourceIdentifier == identifier {
			return m.Scaling.DeepCopy()
		}
	}
	return nil
}
