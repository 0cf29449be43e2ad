// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

func recommendationOf(name string, created, updated time.Time) *analysisv1alpha1.Recommendation {
	return &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(created)},
		Spec: analysisv1alpha1.RecommendationSpec{
			TargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
			Type:      analysisv1alpha1.AnalysisTypeResource,
		},
		Status: analysisv1alpha1.RecommendationStatus{LastUpdateTime: new(metav1.NewTime(updated))},
	}
}

// TestMetricsOfOneWorkload: of two recommendations for one workload the older is exported, once; when it goes the other
// takes its place; when both are gone nothing is left.
func TestMetricsOfOneWorkload(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	m := NewMetrics(func() time.Time { return now }, 24*time.Hour)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	value := func(cpu string) parsedValue {
		return parsedValue{containers: map[string]corev1.ResourceList{"app": {corev1.ResourceCPU: resource.MustParse(cpu)}}}
	}
	older := recommendationOf("z", now.Add(-2*time.Hour), now.Add(-time.Hour))
	newer := recommendationOf("a", now.Add(-time.Hour), now.Add(-48*time.Hour))
	newer.Status.Conditions = []metav1.Condition{{Type: conditionFailed, Status: metav1.ConditionTrue}}
	m.observe(newer, value("2"))
	m.observe(older, value("250m"))
	m.countExecution(older)
	m.countExecution(older)
	const target = `apiversion="apps/v1",namespace="shop",owner_kind="Deployment",owner_name="web"`
	check := func(want string, names ...string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
			t.Error(err)
		}
	}
	check(`# HELP crane_analysis_resource_recommendation Recommended request of a container, in cores or bytes.
# TYPE crane_analysis_resource_recommendation gauge
crane_analysis_resource_recommendation{apiversion="apps/v1",container="app",namespace="shop",owner_kind="Deployment",owner_name="web",resource="cpu"} 0.25
# HELP crane_analysis_select_targets 1 for each target that a rule selects.
# TYPE crane_analysis_select_targets gauge
crane_analysis_select_targets{` + target + `,type="Resource"} 1
# HELP crane_analysis_recommendation_execution_total Evaluations of a target since this process first saw it.
# TYPE crane_analysis_recommendation_execution_total counter
crane_analysis_recommendation_execution_total{` + target + `,type="Resource"} 2
# HELP crane_analysis_recommendations_status Seconds since the recommendation was last computed.
# TYPE crane_analysis_recommendations_status gauge
crane_analysis_recommendations_status{apiversion="apps/v1",namespace="shop",owner_kind="Deployment",owner_name="web",result_status="Success",type="Resource",update_status="Updated"} 3600
`)
	m.forget(types.NamespacedName{Namespace: "shop", Name: "z"})
	check(`# HELP crane_analysis_recommendations_status Seconds since the recommendation was last computed.
# TYPE crane_analysis_recommendations_status gauge
crane_analysis_recommendations_status{apiversion="apps/v1",namespace="shop",owner_kind="Deployment",owner_name="web",result_status="Failed",type="Resource",update_status="OutDate"} 172800
`, "crane_analysis_recommendations_status")
	m.forget(types.NamespacedName{Namespace: "shop", Name: "a"})
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
		t.Errorf("%d series are left, %v", n, err)
	}
}
