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
	// defaultPodStartup is how long a pod takes to be ready where nobody says; maxPodStartup bounds what may be said.
	defaultPodStartup, maxPodStartup = time.Minute, time.Hour
	// defaultTargetFill is the share of a pod's capacity that an average value is taken for: it does not say what a pod can carry.
	defaultTargetFill = 0.7
)

// scalingPlant says what scales with a metric, for the account of what its forecast is worth. The error is a sentence for the user.
func scalingPlant(
	ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, m *autoscalingv2.MetricSpec, perPod resource.Quantity,
) (*predictionv1alpha1.ScalingPlant, error) {
	startup, err := podStartup(ehpa)
	if err != nil {
		return nil, err
	}
	target := defaultTargetFill
	if aim, _ := metricTarget(m); aim.AverageUtilization != nil {
		// A pod that is to use more than it requests carries what it is to use.
		target = math.Min(1, float64(*aim.AverageUtilization)/100)
	}
	aimed := perPod.AsApproximateFloat64()
	if !(aimed > 0) {
		return nil, fmt.Errorf("a target of %s a pod says nothing of replicas", perPod.String())
	}
	return &predictionv1alpha1.ScalingPlant{
		PodCapacity: apiNumber(aimed / target), Target: apiNumber(target),
		LagSeconds:           int32((metricDelay + syncPeriod + startup) / time.Second),
		StabilizationSeconds: int32(scalingBehavior(ehpa.Spec.Behavior).Down.StabilizationWindow / time.Second),
	}, nil
}

func apiNumber(v float64) predictionv1alpha1.Number {
	const digits = 9
	return predictionv1alpha1.Number(strconv.FormatFloat(v, 'g', digits, 64))
}

// podStartup is how long a pod of the target takes to be ready.
func podStartup(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) (time.Duration, error) {
	text, said := ehpa.Annotations[autoscalingv1alpha1.AnnotationPodStartup]
	if !said {
		return defaultPodStartup, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxPodStartup {
		return 0, fmt.Errorf("annotation %s: %q: want a duration from 0s to %s, such as 90s", autoscalingv1alpha1.AnnotationPodStartup, text, maxPodStartup)
	}
	return d, nil
}

// previousPlant is what was said of a metric before.
func previousPlant(tsp *predictionv1alpha1.TimeSeriesPrediction, identifier string) *predictionv1alpha1.ScalingPlant {
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
