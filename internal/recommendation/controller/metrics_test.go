// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
			t.Errorf("metrics differ from what is wanted: %v", err)
		}
	}

	check(`# HELP crane_analysis_resource_recommendation Recommended request of a container, in cores or bytes.
# TYPE crane_analysis_resource_recommendation gauge
crane_analysis_resource_recommendation{apiversion="apps/v1",container="app",namespace="shop",owner_kind="Deployment",owner_name="web",resource="cpu",type="Resource"} 0.25
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
		t.Errorf("%d series after the deletion, error %v, want none", n, err)
	}
}

// TestCalibrationMetrics checks that target and achieved share of each container are exported while the Recommendation has them, without
// unreadable ones, and go with it.
func TestCalibrationMetrics(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	m := NewMetrics(func() time.Time { return now }, 24*time.Hour)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}

	rec := recommendationOf("web", now, now)
	rec.Status.Evidence = []analysisv1alpha1.CalibrationEvidence{
		{Container: "app", Target: "0.005", Achieved: "0.0125", Days: 12}, {Container: "broken", Target: "x", Achieved: ""},
	}

	names := []string{"crane_analysis_calibration_target_ratio", "crane_analysis_calibration_achieved_ratio"}
	check := func(want string) {
		t.Helper()

		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
			t.Errorf("metrics differ from what is wanted: %v", err)
		}
	}

	m.observe(rec, parsedValue{})
	const labels = `apiversion="apps/v1",container="app",namespace="shop",owner_kind="Deployment",owner_name="web",type="Resource"`
	check(`# HELP crane_analysis_calibration_achieved_ratio Share of the time that CPU usage of a container exceeded the request in the replay of its past days, 0 to 1.
# TYPE crane_analysis_calibration_achieved_ratio gauge
crane_analysis_calibration_achieved_ratio{` + labels + `} 0.0125
# HELP crane_analysis_calibration_target_ratio Target of the policy calibrated: the share of the time that CPU usage of a container may exceed the request, 0 to 1.
# TYPE crane_analysis_calibration_target_ratio gauge
crane_analysis_calibration_target_ratio{` + labels + `} 0.005
`)

	rec.Status.Evidence = nil // Another policy.
	m.observe(rec, parsedValue{})
	check("")
	rec.Status.Evidence = []analysisv1alpha1.CalibrationEvidence{{Container: "app", Target: "0.005", Achieved: "0"}}
	m.observe(rec, parsedValue{})

	if n, err := testutil.GatherAndCount(registry, names...); err != nil || n != 2 {
		t.Errorf("%d series, error %v, want 2", n, err)
	}

	m.forget(types.NamespacedName{Namespace: "shop", Name: "web"})
	check("")
}

// TestReplayWithReaction checks that the reaction is part of the replay of workloads that react, and of no others.
func TestReplayWithReaction(t *testing.T) {
	auto := func(rec *analysisv1alpha1.Recommendation, _ *appsv1.Deployment) {
		rec.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeAuto
		rec.Status.Adoption = &analysisv1alpha1.AdoptionStatus{}
	}

	for name, test := range map[string]struct {
		off    bool
		labels map[string]string // of the namespace
		change func(*analysisv1alpha1.Recommendation, *appsv1.Deployment)
		want   bool
	}{
		"adopted in place": {change: auto, want: true},
		"no reaction":      {off: true, change: auto},
		"advice": {change: func(rec *analysisv1alpha1.Recommendation, d *appsv1.Deployment) {
			auto(rec, d)
			rec.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeStatusAndAnnotation
		}},
		"new pods": {change: func(rec *analysisv1alpha1.Recommendation, d *appsv1.Deployment) {
			auto(rec, d)
			rec.Spec.Adoption = &analysisv1alpha1.AdoptionSpec{Reach: analysisv1alpha1.AdoptionReachNewPods}
		}},
		"recreated": {change: func(rec *analysisv1alpha1.Recommendation, d *appsv1.Deployment) {
			auto(rec, d)
			rec.Spec.Adoption = &analysisv1alpha1.AdoptionSpec{Reach: analysisv1alpha1.AdoptionReachRecreate}
		}},
		"too few pods": {change: func(rec *analysisv1alpha1.Recommendation, d *appsv1.Deployment) {
			auto(rec, d)
			rec.Spec.Adoption = &analysisv1alpha1.AdoptionSpec{MinReplicas: new(int32(3))}
		}},
		"stopped": {change: func(rec *analysisv1alpha1.Recommendation, d *appsv1.Deployment) {
			auto(rec, d)
			meta.SetStatusCondition(&rec.Status.Conditions, metav1.Condition{Type: analysisv1alpha1.ConditionAdopted, Status: metav1.ConditionFalse, Reason: "Stopped"})
		}},
		"not adopted yet": {change: func(rec *analysisv1alpha1.Recommendation, d *appsv1.Deployment) {
			auto(rec, d)
			rec.Status.Adoption = nil
		}},
		"rolled back": {change: func(rec *analysisv1alpha1.Recommendation, d *appsv1.Deployment) {
			auto(rec, d)
			rec.Status.Adoption.Phase = "Held"
		}},
		"opted out": {change: func(rec *analysisv1alpha1.Recommendation, d *appsv1.Deployment) {
			auto(rec, d)
			d.Labels[analysisv1alpha1.LabelOptOut] = "true"
		}},
		"namespace opted out": {change: auto, labels: map[string]string{analysisv1alpha1.LabelAdoption: analysisv1alpha1.LabelAdoptionOff}},
		"limited": {change: func(rec *analysisv1alpha1.Recommendation, d *appsv1.Deployment) {
			auto(rec, d)
			d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
		}},
		"restarted": {change: func(rec *analysisv1alpha1.Recommendation, d *appsv1.Deployment) {
			auto(rec, d)
			d.Spec.Template.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
		}},
		"without a request": {change: func(rec *analysisv1alpha1.Recommendation, d *appsv1.Deployment) {
			auto(rec, d)
			d.Spec.Template.Spec.Containers[0].Resources.Requests = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := testRule("24h")
			rule.Spec.Recommenders[0].Config = map[string]string{"policy": "calibrated"}
			f := newFixture(t, rule, deployment("web"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: test.labels}})
			f.source.days = 14
			f.Reaction = !test.off
			f.settle()
			rec := f.all()["web"]
			target := deployment("web")
			changed := f.rule()

			if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(target), target); err != nil {
				t.Fatal(err)
			}

			test.change(&rec, target)
			changed.Generation = 2
			status := rec.Status

			err := errors.Join(f.Client.Update(t.Context(), &rec), f.Client.Update(t.Context(), target), f.Client.Update(t.Context(), changed))
			rec.Status = status
			if err = errors.Join(err, f.Client.Status().Update(t.Context(), &rec)); err != nil {
				t.Fatal(err)
			}

			f.settle()
			evidence := f.all()["web"].Status.Evidence
			if len(evidence) != 1 || strings.Contains(evidence[0].Message, "with raises within the day") != test.want {
				t.Errorf("evidence %+v, want raises within the day: %t", evidence, test.want)
			}
		})
	}
}

// TestEvidenceInStatus checks that a calibrated rule writes target, achieved share and plot, and that another policy removes them.
func TestEvidenceInStatus(t *testing.T) {
	rule := testRule("24h")
	rule.Spec.Recommenders[0].Config = map[string]string{"policy": "calibrated", "target": "0.01"}
	f := newFixture(t, rule, deployment("web"))
	f.source.days = 14
	f.settle()

	got := f.all()["web"].Status.Evidence
	if len(got) != 1 || got[0].Container != "app" || got[0].Target != "0.010000" || got[0].Achieved != "0.000000" || got[0].Days < 7 ||
		!strings.HasSuffix(got[0].Message, "target 14.4 minutes a day: met") || strings.Count(got[0].Plot, "\n") != 40 || len(got[0].Plot) > 4096 {
		t.Errorf("evidence %+v, want one of app with target 0.01 met, and a plot of 40 lines", got)
	}

	changed := f.rule()
	changed.Spec.Recommenders[0].Config = nil
	changed.Generation = 2
	if err := f.Client.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}

	f.settle()
	if got := f.all()["web"]; got.Status.Evidence != nil || got.Status.RecommendedValue == "" {
		t.Errorf("status %+v, want a value without evidence", got.Status)
	}
}

// TestSeriesOfManyWorkloads states the series of a workload with one container, which docs/reference/monitoring.md repeats, and
// checks that they go with their objects.
func TestSeriesOfManyWorkloads(t *testing.T) {
	const workloads, perWorkload = 10_000, 6
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

	m := NewMetrics(func() time.Time { return now }, 24*time.Hour)
	registry := prometheus.NewRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}

	size := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	all := make([]*analysisv1alpha1.Recommendation, workloads)
	for i := range all {
		rec := recommendationOf(fmt.Sprintf("web-%d", i), now, now)
		rec.Spec.TargetRef.Name = rec.Name
		rec.Status.Savings = &analysisv1alpha1.Savings{Currency: "USD", Monthly: "1.5"}
		m.observe(rec, parsedValue{containers: map[string]corev1.ResourceList{"app": size}})
		m.countExecution(rec)
		all[i] = rec
	}

	n, err := testutil.GatherAndCount(registry)
	if err != nil || n < workloads*perWorkload || n > workloads*perWorkload+3 {
		t.Errorf("%d series, want %d for each workload: %v", n, perWorkload, err)
	}

	t.Logf("%d series of %d workloads", n, workloads)
	for _, rec := range all {
		m.forget(types.NamespacedName{Namespace: rec.Namespace, Name: rec.Name})
	}

	if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
		t.Errorf("%d series after the deletion, error %v, want none", n, err)
	}
}
