// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
)

// TestUnknownMetricQueryAnnotation checks that the answer to an annotation that names no metric has the annotations that do.
func TestUnknownMetricQueryAnnotation(t *testing.T) {
	ehpa := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	ehpa.Spec.MaxReplicas = 5
	ehpa.Spec.Prediction = &autoscalingv1alpha1.Prediction{PredictionAlgorithm: &autoscalingv1alpha1.PredictionAlgorithm{}}
	ehpa.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "job:http_requests:rate5m"},
	}}}
	key := scalingmetric.QueryAnnotation("pods.job:http_requests:rate5m")

	for annotation, want := range map[string]bool{"metric-query.autoscaling.crane.io/http_requests": true, key: false} {
		ehpa.Annotations = map[string]string{annotation: "sum(rate(http_requests_total[5m]))"}

		warnings := strings.Join(ValidateEffectiveHorizontalPodAutoscaler(ehpa, Facts{}).Warnings, "\n")
		if got := strings.Contains(warnings, "has no effect: it names no metric") && strings.Contains(warnings, key); got != want {
			t.Errorf("warnings with the annotation %s: %q; naming the right key = %v, want %v", annotation, warnings, got, want)
		}
	}
}

// TestManyUnknownMetricQueryAnnotations checks that the warnings about as many annotations as an object can have stay small: each of them
// would otherwise name all metrics.
func TestManyUnknownMetricQueryAnnotations(t *testing.T) {
	ehpa := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	ehpa.Spec.Prediction = &autoscalingv1alpha1.Prediction{PredictionAlgorithm: &autoscalingv1alpha1.PredictionAlgorithm{}}
	for i := range 100 {
		ehpa.Spec.Metrics = append(ehpa.Spec.Metrics, autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: fmt.Sprintf("%s_%d", strings.Repeat("m", 200), i)},
		}})
	}

	const annotations = 5000
	ehpa.Annotations = map[string]string{}
	for i := range annotations {
		ehpa.Annotations[fmt.Sprintf("metric-query.autoscaling.crane.io/x%d", i)] = "up"
	}

	warnings := ValidateEffectiveHorizontalPodAutoscaler(ehpa, Facts{}).Warnings
	if size := len(strings.Join(warnings, "")); len(warnings) < annotations || size > 2<<20 {
		t.Errorf("%d annotations have %d warnings of %d bytes, want one each and at most 2 MiB", annotations, len(warnings), size)
	}
}
