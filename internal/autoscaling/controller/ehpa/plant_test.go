// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

func TestScalingPlant(t *testing.T) {
	average := autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse("35"))},
	}}
	startup := func(text string) func(*scaler) {
		return func(e *scaler) { e.Annotations = map[string]string{autoscalingv1alpha1.AnnotationPodStartup: text} }
	}
	atOnce := func(e *scaler) {
		e.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(0))}}
	}
	type plant = predictionv1alpha1.ScalingPlant

	of := func(capacity, target predictionv1alpha1.Number, lag, stabilization int32) plant {
		return plant{PodCapacity: capacity, Target: target, LagSeconds: lag, StabilizationSeconds: stabilization}
	}
	for name, c := range map[string]struct {
		edit   func(*scaler)
		metric autoscalingv2.MetricSpec
		perPod string
		want   plant
		err    string
	}{
		"a utilization":            {func(*scaler) {}, utilization(corev1.ResourceCPU, 60), "150m", of("0.25", "0.6", 105, 300), ""},
		"more than is requested":   {func(*scaler) {}, utilization(corev1.ResourceCPU, 150), "375m", of("0.375", "1", 105, 300), ""},
		"an average value":         {func(*scaler) {}, average, "35", of("50", "0.7", 105, 300), ""},
		"pods that start slowly":   {startup("3m"), average, "35", of("50", "0.7", 225, 300), ""},
		"pods that start at once":  {startup("0s"), average, "35", of("50", "0.7", 45, 300), ""},
		"no stabilization":         {atOnce, average, "35", of("50", "0.7", 105, 0), ""},
		"a time that is none":      {startup("soon"), average, "35", plant{}, `"soon": must be a duration`},
		"a time that is too long":  {startup("2h"), average, "35", plant{}, "from 0s to 1h"},
		"a time that has gone by":  {startup("-1s"), average, "35", plant{}, "from 0s to 1h"},
		"a target of nothing":      {func(*scaler) {}, average, "0", plant{}, "a target of 0 a pod"},
		"a target below nothing":   {func(*scaler) {}, average, "-1", plant{}, "a target of -1 a pod"},
		"an annotation of nothing": {startup(""), average, "35", plant{}, "must be a duration"},
	} {
		got, err := scalingPlant(web(c.edit), &c.metric, resource.MustParse(c.perPod))
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: error %v, want %q", name, err, c.err)
		case c.err == "" && (err != nil || *got != c.want):
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

// editChoice edits the choice of the ledger in the forecast.
func (b *fixture) editChoice(t *testing.T, edit func(*predictionv1alpha1.ScalingChoice)) {
	t.Helper()

	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := b.Client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "ehpa-web"}, tsp); err != nil {
		t.Fatal(err)
	}

	edit(tsp.Status.PredictionMetrics[0].Scaling)
	if err := b.Client.Status().Update(t.Context(), tsp); err != nil {
		t.Fatal(err)
	}
}

// TestReconcile_ForecastCostsMoreThanItAvoids checks that a forecast that costs more than it spares is removed from the HPA with a reason.
func TestReconcile_ForecastCostsMoreThanItAvoids(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web())
	b.reconcile(t, "web")
	b.writeForecast(t, "ehpa-web", "0.5", 1.5)
	b.reconcile(t, "web")

	if n := len(b.hpa(t, "ehpa-web").Spec.Metrics); n != 2 {
		t.Fatalf("%d metrics with a forecast that is worth it, want 2", n)
	}

	b.editChoice(t, func(c *predictionv1alpha1.ScalingChoice) {
		c.Use = false
		c.Why = "the HPA alone was never under capacity"
	})
	e, _ := b.reconcile(t, "web")

	got := meta.FindStatusCondition(e.Status.Conditions, autoscalingv1alpha1.ConditionPredictionReady)
	if got == nil || got.Reason != autoscalingv1alpha1.ReasonPredictionIgnored || !strings.Contains(got.Message, "costs more on past days than it avoids (the HPA alone was never under capacity)") {
		t.Errorf("condition %+v, want %s because the forecast costs more than it avoids", got, autoscalingv1alpha1.ReasonPredictionIgnored)
	}
	if n := len(b.hpa(t, "ehpa-web").Spec.Metrics); n != 1 {
		t.Errorf("%d metrics with a forecast that is not worth it, want 1", n)
	}
}

// TestPodStartupThatCannotBeRead checks that an invalid annotation makes the forecast ignored with a reason, and keeps the ledger.
func TestPodStartupThatCannotBeRead(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web())
	b.reconcile(t, "web")
	b.writeForecast(t, "ehpa-web", "0.5", 1.5)

	e, _ := b.reconcile(t, "web")
	e.Annotations = map[string]string{autoscalingv1alpha1.AnnotationPodStartup: "soon"}
	if err := b.Client.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}

	e, _ = b.reconcile(t, "web")
	got := meta.FindStatusCondition(e.Status.Conditions, autoscalingv1alpha1.ConditionPredictionReady)
	if got == nil || !strings.Contains(got.Message, `pod-startup: "soon": must be a duration`) {
		t.Errorf("condition %+v, want one about the annotation pod-startup", got)
	}

	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := b.Client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "ehpa-web"}, tsp); err != nil {
		t.Fatal(err)
	}

	if plant := tsp.Spec.PredictionMetrics[0].Scaling; plant == nil || plant.LagSeconds != 105 || len(b.hpa(t, "ehpa-web").Spec.Metrics) != 1 {
		t.Errorf("the plant is %+v and the HPA has %d metrics, want a lag of 105 s and 1 metric", plant, len(b.hpa(t, "ehpa-web").Spec.Metrics))
	}
}
