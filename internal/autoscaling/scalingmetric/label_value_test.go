// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingmetric

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// FuzzLabelValue checks that any text becomes a label value and the name of an annotation, that valid ones stay, and that encoding twice
// changes nothing more.
func FuzzLabelValue(f *testing.F) {
	for _, text := range []string{
		"resource.cpu", "external.job:orders_waiting:sum", "external.apiserver_flowcontrol_read_vs_write_current_requests_count", "", "-", ":", "a:", ":a",
		"resource.nvidia.com/gpu", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("-", 70) + "a", "größe", "\xff", "a.b-", "a b",
	} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		got := LabelValue(text)
		if reasons := validation.IsValidLabelValue(got); len(reasons) > 0 {
			t.Errorf("LabelValue(%q) = %q, want a label value: %v", text, got, reasons)
		}
		if got != "" && len(validation.IsQualifiedName("metric-query.autoscaling.crane.io/"+got)) > 0 {
			t.Errorf("LabelValue(%q) = %q, want a name in the key of an annotation", text, got)
		}
		if valid := len(validation.IsValidLabelValue(text)) == 0; valid && got != text || !valid && got == text {
			t.Errorf("LabelValue(%q) = %q, want the text itself only where it is a label value", text, got)
		}
		if twice := LabelValue(got); twice != got {
			t.Errorf("LabelValue(%q) = %q, want %q as after encoding once", got, twice, got)
		}
		if other := LabelValue(text + ":"); other == got {
			t.Errorf("LabelValue of %q and of the same text with a colon are both %q, want two", text, got)
		}
	})
}

// TestKey_NoLabelValue checks that the key of a metric and a target whose names are no label values is a selector that an HPA accepts and that
// finds them again.
func TestKey_NoLabelValue(t *testing.T) {
	const identifier, target = "external.job:orders_waiting:sum", "a-service-with-a-rather-long-name-that-has-more-than-63-characters"

	key := Key{TargetKind: "Deployment", TargetName: target, TargetNamespace: "shop", Identifier: identifier}
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: key.MatchLabels()})
	if err != nil {
		t.Fatalf("LabelSelectorAsSelector(%v) = %v, want a selector", key.MatchLabels(), err)
	}

	parsed, err := labels.Parse(selector.String())
	if err != nil {
		t.Fatal(err)
	}

	got, err := ParseKey(parsed)
	if err != nil {
		t.Fatalf("ParseKey(%s) = %v, want a key", parsed, err)
	}

	tsp := newPrediction("0.5", 7)
	tsp.Namespace = "shop"
	tsp.Labels = map[string]string{autoscalingv1alpha1.LabelManagedBy: autoscalingv1alpha1.ManagedByEffectiveHPA}
	tsp.Spec.TargetRef = &corev1.ObjectReference{Kind: "Deployment", Name: target}
	tsp.Spec.PredictionMetrics[0].ResourceIdentifier = identifier
	tsp.Status.PredictionMetrics[0].ResourceIdentifier = identifier
	if !got.SelectsPrediction(tsp) {
		t.Errorf("SelectsPrediction by %+v = false, want true for the target %s", got, target)
	}

	forecast, err := ActionableForecast(tsp, got.Identifier, noon())
	if err != nil || forecast.Value != 7 {
		t.Errorf("ActionableForecast of %s = %v, error %v, want 7", got.Identifier, forecast.Value, err)
	}

	// The text that the encoding of one identifier yields may be another identifier.
	tsp.Spec.PredictionMetrics = append(tsp.Spec.PredictionMetrics, predictionv1alpha1.PredictionMetric{ResourceIdentifier: got.Identifier})
	if m := MetricSpec(tsp, got.Identifier); m.ResourceIdentifier != got.Identifier {
		t.Errorf("MetricSpec(%s) = %s, want the metric with exactly this identifier", got.Identifier, m.ResourceIdentifier)
	}
}

func TestIdentifiers(t *testing.T) {
	container := func(name string) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu", Container: name}}
	}
	resource := autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu"}}
	external := func(name string) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: name}}}
	}

	for name, c := range map[string]struct {
		metrics []autoscalingv2.MetricSpec
		want    []string
	}{
		"containers": {
			[]autoscalingv2.MetricSpec{resource, container("a"), container("b"), resource, container("b")},
			[]string{"resource.cpu", "container-resource.cpu", "container-resource.cpu.b", "resource.cpu.2", "container-resource.cpu.b.2"},
		},
		"a metric that is named as the second of another": {
			[]autoscalingv2.MetricSpec{external("q"), external("q"), external("q.2")},
			[]string{"external.q", "external.q.2", "external.q.2.2"},
		},
		"a metric that is named as another is encoded": {
			[]autoscalingv2.MetricSpec{external("a:b"), external(strings.TrimPrefix(LabelValue("external.a:b"), "external."))},
			[]string{"external.a:b", LabelValue("external.a:b") + ".2"},
		},
	} {
		if got := Identifiers(c.metrics); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: Identifiers = %v, want %v", name, got, c.want)
		}
	}
}

func TestUnknownQueryAnnotations(t *testing.T) {
	const prefix = autoscalingv1alpha1.AnnotationMetricQueryPrefix

	ehpa := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	ehpa.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "job:http_requests:rate5m"},
	}}}
	known := QueryAnnotation("pods.job:http_requests:rate5m")
	ehpa.Annotations = map[string]string{prefix + "http_requests": "x", prefix + "pods.http_requests": "x", known: "x", "other": "x"}

	got := UnknownQueryAnnotations(ehpa)
	if want := []string{prefix + "http_requests", prefix + "pods.http_requests"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("UnknownQueryAnnotations = %v, want %v", got, want)
	}
}
