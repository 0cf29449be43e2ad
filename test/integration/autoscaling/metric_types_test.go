// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

func averageTarget(q string) autoscalingv2.MetricTarget {
	v := resource.MustParse(q)
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &v}
}

// metricsOfAllTypes returns a metric of each type, with amounts that integers cannot represent.
func metricsOfAllTypes() []autoscalingv2.MetricSpec {
	value := resource.MustParse("12500m")
	selector := &metav1.LabelSelector{
		MatchLabels:      map[string]string{"queue": "orders", "env": "live"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}},
	}

	return []autoscalingv2.MetricSpec{
		cpu(),
		{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceMemory, Target: averageTarget("300.5Mi")}},
		{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
			Name: corev1.ResourceCPU, Container: "main", Target: averageTarget("900m"),
		}},
		{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "requests"}, Target: averageTarget("1500m")}},
		{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: "web"},
			Metric:          autoscalingv2.MetricIdentifier{Name: "hits"},
			Target:          autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &value},
		}},
		{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "queue", Selector: selector}, Target: averageTarget("0.75"),
		}},
	}
}

// TestEveryMetricAndBehaviorReachesTheHPA checks that metrics and behavior are written to the HPA once, with the defaults of the
// API server, and labels and annotations as configured.
func TestEveryMetricAndBehaviorReachesTheHPA(t *testing.T) {
	f := newFixture(t, "--ehpa-propagation-labels=team", "--ehpa-propagation-annotation-prefixes=cost/")
	metrics.setSharedLoad(f.Name, 300)
	window := int32(120)
	least := autoscalingv2.MinChangePolicySelect
	tolerance := resource.MustParse("0.05")

	f.CreateAll(deployment("web", 2, 250), scaler("web", func(e *ehpa) {
		e.Labels = map[string]string{"team": "shop", "other": "x"}
		e.Annotations = map[string]string{
			"cost/center": "7",
			autoscalingv1alpha1.AnnotationMetricQueryPrefix + "pods.requests": `sum(rate(requests_total{app="web"}[5m]))`,
		}
		e.Spec.Metrics = metricsOfAllTypes()

		e.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: &autoscalingv2.HPAScalingRules{Tolerance: &tolerance},
			ScaleDown: &autoscalingv2.HPAScalingRules{
				StabilizationWindowSeconds: &window, SelectPolicy: &least,
				Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 2, PeriodSeconds: 60}},
			},
		}
	}))

	f.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
	// A spec that differs from its stored form would be written in each reconcile; this change causes one.
	f.change("web", func(e *ehpa) { e.Annotations["note"] = "a round" })
	f.change("web", func(e *ehpa) { e.Spec.MaxReplicas = 21 })

	h := f.awaitHPA("ehpa-web", "follows", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if h.Spec.MaxReplicas != 21 {
			return fmt.Errorf("maxReplicas %d", h.Spec.MaxReplicas)
		}

		return nil
	})

	if !equality.Semantic.DeepEqual(h.Spec.Metrics, metricsOfAllTypes()) {
		t.Errorf("metrics %+v, want those of the autoscaler", h.Spec.Metrics)
	}

	down, up := h.Spec.Behavior.ScaleDown, h.Spec.Behavior.ScaleUp
	if *down.StabilizationWindowSeconds != 120 || *down.SelectPolicy != least || len(down.Policies) != 1 || up.Tolerance == nil || up.Tolerance.String() != "50m" {
		t.Errorf("behavior %+v %+v, want the two rules of the autoscaler", down, up)
	}
	if h.Labels["team"] != "shop" || h.Labels["other"] != "" || h.Annotations["cost/center"] != "7" || h.Annotations["note"] != "" {
		t.Errorf("labels %v, annotations %v, want the propagated ones alone", h.Labels, h.Annotations)
	}
	if h.Generation > 2 {
		t.Errorf("the HPA was written %d times, want at most two writes", h.Generation)
	}

	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := f.Get(t.Context(), f.Key("ehpa-web"), tsp); err != nil {
		t.Fatal(err)
	}

	want := map[string]string{
		"resource.cpu": "", "resource.memory": "",
		"container-resource.cpu": `sum(max by (namespace, pod, container) (sum without (cpu) (rate(container_cpu_usage_seconds_total{namespace="` + f.Name +
			`",pod=~"(web)-[a-z0-9]{1,10}-[a-z0-9]{5}",container="main"}[5m]))))`,
		"pods.requests":  `sum(rate(requests_total{app="web"}[5m]))`,
		"external.queue": `sum(queue{env="live",queue="orders",tier=~"a|b"})`,
	}

	for _, m := range tsp.Spec.PredictionMetrics {
		text, ok := want[m.ResourceIdentifier]
		if m.ExpressionQuery != nil && m.ExpressionQuery.Expression != text || !ok || (m.ExpressionQuery == nil) != (text == "") {
			t.Errorf("metric %s is %+v, want the query %q", m.ResourceIdentifier, m.ExpressionQuery, text)
		}

		delete(want, m.ResourceIdentifier)
	}

	if len(want) > 0 {
		t.Errorf("not forecast: %v, want a prediction of each", want)
	}
}

// TestTargetOfAnyKind checks that a target that is not cached is scaled through its scale subresource.
func TestTargetOfAnyKind(t *testing.T) {
	f := newFixture(t)
	metrics.setSharedLoad(f.Name, 900)
	template := deployment("bare", 2, 250).Spec
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	set.Spec.Replicas = template.Replicas
	set.Spec.Selector = template.Selector
	set.Spec.Template = template.Template
	f.CreateAll(set, scaler("bare", func(e *ehpa) { e.Spec.ScaleTargetRef.Kind = "ReplicaSet" }))
	f.awaitCondition("bare", "Ready=True/EffectiveHorizontalPodAutoscalerReady")

	// The requests are read from a pod. Before one exists, a forecast cannot be rated for its target.
	harness.Await(f.Namespace, &predictionv1alpha1.TimeSeriesPrediction{}, "ehpa-bare", "has the target of a pod", func(p *predictionv1alpha1.TimeSeriesPrediction) error {
		if p.Spec.PredictionMetrics[0].Scaling == nil {
			return fmt.Errorf("spec %+v", p.Spec)
		}

		return nil
	})

	f.forecast("bare", "0.5", 0.3)
	f.awaitCondition("bare", "PredictionReady=True/Predicting")
	f.awaitScaler("bare", "6 replicas for the present load", func(e *ehpa) error {
		if s := e.Status; s.ExpectReplicas == nil || *s.ExpectReplicas != 6 || s.CurrentReplicas == nil || *s.CurrentReplicas == 0 ||
			s.Winner != "resource.cpu" || proposal(e, "prediction of resource.cpu").Target != "150m" {
			return fmt.Errorf("status %+v", s)
		}

		return nil
	})
}
