// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingmetric

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

// MetricSpecs returns the metrics of the spec. Without any it returns the default of the API server, 80 % of the CPU request, written
// out so that status and forecasts cover it.
func MetricSpecs(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) []autoscalingv2.MetricSpec {
	if len(ehpa.Spec.Metrics) > 0 {
		return ehpa.Spec.Metrics
	}

	return []autoscalingv2.MetricSpec{{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(80))},
		},
	}}
}

// Identifiers returns gocrane's resourceIdentifier of each metric. Where two metrics would share one, also as a label value, the later one has
// the name of its container, or a number, appended.
func Identifiers(metrics []autoscalingv2.MetricSpec) []string {
	out := make([]string, len(metrics))
	taken := map[string]bool{}
	for i := range metrics {
		m := &metrics[i]
		name := identifier(m)
		if taken[LabelValue(name)] && m.Type == autoscalingv2.ContainerResourceMetricSourceType {
			name += "." + m.ContainerResource.Container
		}

		out[i] = name
		for n := 2; taken[LabelValue(out[i])]; n++ {
			out[i] = fmt.Sprintf("%s.%d", name, n)
		}

		taken[LabelValue(out[i])] = true
	}

	return out
}

func identifier(m *autoscalingv2.MetricSpec) string {
	switch m.Type {
	case autoscalingv2.ResourceMetricSourceType:
		return "resource." + string(m.Resource.Name)
	case autoscalingv2.ContainerResourceMetricSourceType:
		return "container-resource." + string(m.ContainerResource.Name)
	case autoscalingv2.PodsMetricSourceType:
		return "pods." + m.Pods.Metric.Name
	case autoscalingv2.ObjectMetricSourceType: // gocrane does not forecast these.
		return "object." + m.Object.Metric.Name
	case autoscalingv2.ExternalMetricSourceType:
		return "external." + m.External.Metric.Name
	}

	return string(m.Type)
}

// QueryAnnotation returns the key of the annotation with the query for the history of a metric.
func QueryAnnotation(identifier string) string {
	return autoscalingv1alpha1.AnnotationMetricQueryPrefix + LabelValue(identifier)
}

// UnknownQueryAnnotations returns the keys, sorted, of the query annotations that name no metric of an autoscaler and so have no effect.
func UnknownQueryAnnotations(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) []string {
	var out []string
	known := QueryAnnotations(ehpa)
	for _, key := range slices.Sorted(maps.Keys(ehpa.Annotations)) {
		if strings.HasPrefix(key, autoscalingv1alpha1.AnnotationMetricQueryPrefix) && !slices.Contains(known, key) {
			out = append(out, key)
		}
	}

	return out
}

// QueryAnnotations returns the keys of the query annotations that an autoscaler can have, in the order of its metrics.
func QueryAnnotations(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) []string {
	var out []string
	metrics := MetricSpecs(ehpa)
	for i, identifier := range Identifiers(metrics) {
		if metrics[i].Type != autoscalingv2.ObjectMetricSourceType {
			out = append(out, QueryAnnotation(identifier))
		}
	}

	return out
}
