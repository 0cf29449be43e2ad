// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// hostileName is as long and as unusual as the name of a target may be.
var hostileName = strings.Repeat("a_:.", 60)

// TestHostileMetrics checks that /metrics of craned, with the collectors of all controllers, answers with all honest series and a bounded size beside
// a thousand objects of a tenant: several of one target, with values that no workload can have, and with hostile names.
func TestHostileMetrics(t *testing.T) {
	c, err := harness.NewClient(control.Config(), analysisv1alpha1.AddToScheme, predictionv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}

	create(t, c, deployment("honest", "web"), deployment("evil", "web"))
	for _, kind := range []analysisv1alpha1.AnalysisType{analysisv1alpha1.AnalysisTypeResource, analysisv1alpha1.AnalysisTypeUnused} {
		rec := recommendation("honest", "honest-"+strings.ToLower(string(kind)), "web", kind)
		createRecommendation(t, c, rec, "12.5", "EUR", honestValue)
	}

	for i := range 350 {
		for _, kind := range []analysisv1alpha1.AnalysisType{analysisv1alpha1.AnalysisTypeResource, analysisv1alpha1.AnalysisTypeUnused} {
			name := fmt.Sprintf("%s-%d", strings.ToLower(string(kind)), i)
			target := []string{"web", fmt.Sprint(hostileName, i)}[i%2]
			monthly := []string{"99999999999999999999999999999999", "1"}[i%2]
			createRecommendation(t, c, recommendation("evil", name, target, kind), monthly, fmt.Sprint("E", i), hostileValue())
		}
	}

	for i := range 150 {
		create(t, c, prediction(fmt.Sprint("tsp-", i), []string{"honest", "evil"}[i%2]))
	}

	for i := range 100 {
		create(t, c, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: fmt.Sprint("ehpa-", i)},
			Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
				MaxReplicas:    1_000_000,
			},
		})
	}

	for i := range 50 {
		create(t, c, &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: fmt.Sprint("evpa-", i)},
			Spec: autoscalingv1alpha1.EffectiveVerticalPodAutoscalerSpec{
				TargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			},
		})
	}

	prom := servePrometheus(t)
	craned := startCraned(t, prom.URL())
	const labels = `{apiversion="apps/v1",currency="EUR",namespace="honest",owner_kind="Deployment",owner_name="web",type=`
	var page string

	eventually(t, "honest and hostile series", func(ctx context.Context) error {
		var err error
		page, err = craned.Metrics(ctx)
		if err != nil {
			return errors.New(err.Error()[:min(len(err.Error()), 2000)])
		}

		for _, want := range []string{
			"crane_analysis_recommendation_monthly_savings" + labels + `"Resource"} 12.5`,
			"crane_analysis_recommendation_monthly_savings" + labels + `"Unused"} 12.5`,
			`crane_analysis_resource_recommendation{apiversion="apps/v1",container="app",namespace="honest",owner_kind="Deployment",owner_name="web",resource="cpu",type="Resource"} 0.5`,
			`crane_analysis_recommendations_savings_monthly{currency="EUR"} 12.5`,
			`crane_leader 1`, `crane_data_source_up{source="prom"} 1`, `controller_runtime_reconcile_total{controller="`,
		} {
			if !strings.Contains(page, want) {
				return fmt.Errorf("no series %s", want)
			}
		}

		if n := strings.Count(page, `crane_analysis_select_targets{apiversion="apps/v1",namespace="evil"`); n < 352 {
			return fmt.Errorf("the Recommendations of the tenant have %d series, want 352", n)
		}

		return nil
	})

	start := time.Now()
	page, err = craned.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("GET /metrics: status 200, %d bytes, %d lines, %s", len(page), strings.Count(page, "\n"), time.Since(start).Round(time.Millisecond))
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "crane_metrics_") {
			t.Log(strings.TrimSpace(line))
		}
	}

	const most = 64 << 20
	if len(page) > most {
		t.Errorf("GET /metrics answers with %d bytes, want at most %d", len(page), most)
	}

	for _, hostile := range []string{"1e+32", "9e+30", `container="c99"`} {
		if strings.Contains(page, hostile) {
			t.Errorf("GET /metrics answers with %s, want no such value", hostile)
		}
	}

	if n := strings.Count(page, "\ncrane_analysis_recommendations_savings_monthly{"); n > 2 {
		t.Errorf("GET /metrics answers with sums of %d currencies, want at most 2", n)
	}
	if err := craned.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}
}

const honestValue = "resourceRequest: {containers: [{containerName: app, target: {cpu: 500m, memory: 1Gi}}]}"

// hostileValue has 500 containers, with a negative and an absurd request each.
func hostileValue() string {
	var b strings.Builder
	b.WriteString("replicasRecommendation: {replicas: -1}\nresourceRequest:\n  containers:\n")

	for i := range 500 {
		fmt.Fprintf(&b, "  - {containerName: c%d, target: {cpu: \"-1\", memory: \"9e30\", x: \"1\"}}\n", i)
	}

	return b.String()
}

func recommendation(namespace, name, target string, kind analysisv1alpha1.AnalysisType) *analysisv1alpha1.Recommendation {
	return &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: analysisv1alpha1.RecommendationSpec{
			TargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: target}, Type: kind,
		},
	}
}

// createRecommendation creates a Recommendation with a status as its owner may write it.
func createRecommendation(t *testing.T, c client.Client, rec *analysisv1alpha1.Recommendation, monthly, currency, value string) {
	t.Helper()

	create(t, c, rec)
	rec.Status.RecommendedValue = value
	rec.Status.Savings = &analysisv1alpha1.Savings{Monthly: monthly, Currency: currency, CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")}
	rec.Status.Evidence = []analysisv1alpha1.CalibrationEvidence{
		{Container: "app", Target: "0.01", Achieved: "0.02", Days: 7}, {Container: "x", Target: "99", Achieved: "99", Days: 7},
	}

	err := c.Status().Update(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
}

// prediction returns a forecast of a tenant for the workload of a namespace.
func prediction(name, namespace string) *predictionv1alpha1.TimeSeriesPrediction {
	cpu := corev1.ResourceCPU
	return &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: name},
		Spec: predictionv1alpha1.TimeSeriesPredictionSpec{
			TargetRef:               &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: "web"},
			PredictionWindowSeconds: 3600,
			PredictionMetrics: []predictionv1alpha1.PredictionMetric{{
				ResourceIdentifier: strings.Repeat("\"}\n\\", 100), Type: predictionv1alpha1.ResourceQueryMetricType, ResourceQuery: &cpu,
			}},
		},
	}
}
