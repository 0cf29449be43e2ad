// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// TestReplicasAndHPA checks that three recommenders share one query of the history, that the resource with the higher need
// determines the replicas, that HPAs need no configuration, and that values have the formats of gocrane.
func TestReplicasAndHPA(t *testing.T) {
	f := newFixture(t)
	// Ten pods use 0.1 to 0.5 cores; each pod of web uses 200 MiB, each pod of cache 1 GiB.
	f.past.uses = []usageOf{
		{"Deployment", "web", 10, 0.1, 0.5, 200 * mib, 0},
		{"Deployment", "cache", 10, 0.1, 0.5, 1024 * mib, 0},
		{"Deployment", "idle", 2, 0.01, 0.01, 50 * mib, 0},
	}

	f.deploy(10, "web", "cache")
	f.deploy(2, "idle")
	rule := f.rule("all", "HPA", "Resource", "Replicas")
	f.create(rule)
	f.start(setup{})
	f.awaitRule(rule, "RoundCompleted")

	if n := f.past.queryCount(); n != 2 {
		t.Errorf("%d queries for one pass of three recommenders, want 2: cpu and memory", n)
	}

	all := f.recommendations()
	if len(all) != 9 {
		t.Fatalf("%d recommendations, want 9", len(all))
	}

	// The 95th percentile of the sum of ten pods is just below 5 cores: ten pods of half a core.
	for name, want := range map[string]string{"web": "10", "cache": "20", "idle": "1"} {
		r := all["Replicas/"+name]
		if r.Status.RecommendedValue != "replicasRecommendation:\n  replicas: "+want+"\n" || r.Status.RecommendedInfo != `{"spec":{"replicas":`+want+`}}` {
			t.Errorf("replicas of %s: %q %q, want %s: %s", name, r.Status.RecommendedValue, r.Status.RecommendedInfo, want, r.Status.Description)
		}
	}

	if r := all["Replicas/cache"]; r.Status.Action != analysisv1alpha1.ActionPatch || r.Status.CurrentInfo != `{"spec":{"replicas":10}}` ||
		!strings.Contains(r.Status.Description, "memory 20 pods") || !strings.Contains(r.Status.Description, "Evidence: p95 of cpu") {
		t.Errorf("status %+v, want the reason for 20 pods", r.Status)
	}
	if r := all["Replicas/web"]; r.Status.Action != analysisv1alpha1.ActionNone {
		t.Errorf("status %+v, want action None", r.Status)
	}

	checkHPA(t, all["HPA/web"])
	if r := all["HPA/idle"]; harness.ConditionText(r.Status.Conditions, "Ready") != "True/RecommendationReady" || r.Status.Action != analysisv1alpha1.ActionNone || r.Status.RecommendedInfo != "" {
		t.Errorf("status %+v, want no HPA for an idle workload", r.Status)
	}
	if r := all["Resource/web"]; !strings.Contains(r.Status.RecommendedValue, "resourceRequest:") {
		t.Errorf("status %+v, want a request", r.Status)
	}

	f.eventually("metric of the replicas", func(ctx context.Context) error {
		return hasSeries(f, "crane_analysis_replicas_recommendation", 3)
	})
}

// TestShortHistory checks that with two days of history replicas are only raised, with a reason, and no HPA is recommended, and
// that without history neither is recommended.
func TestShortHistory(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{
		{kind: "Deployment", name: "full", pods: 2, low: 1, high: 3, bytes: 200 * mib, since: 48 * time.Hour},
		{kind: "Deployment", name: "empty", pods: 4, low: 0.01, high: 0.01, bytes: 50 * mib, since: 48 * time.Hour},
	}

	f.deploy(2, "full", "unseen")
	f.deploy(4, "empty")
	rule := f.rule("short", "Replicas", "HPA")
	f.create(rule)
	f.start(setup{})
	f.awaitRule(rule, "RoundCompleted")

	all := f.recommendations()
	for name, want := range map[string]struct{ ready, learning, value, says string }{
		// The 95th percentile of the sum of two pods is just below 6 cores: 12 pods of half a core.
		"Replicas/full":   {"True/RecommendationReady", "True/InsufficientHistory", `{"spec":{"replicas":12}}`, "No forecast stands in for the rest"},
		"Replicas/empty":  {"True/RecommendationReady", "True/InsufficientHistory", `{"spec":{"replicas":4}}`, "It stays at 4 pods"},
		"Replicas/unseen": {"False/NoUsage", "False/NoUsage", "", "No cpu use is known"},
		"HPA/full":        {"False/InsufficientHistory", "True/InsufficientHistory", "", "of the last 168 hours"},
		"HPA/unseen":      {"False/NoUsage", "False/NoUsage", "", "No cpu use is known"},
	} {
		r := all[name]
		if harness.ConditionText(r.Status.Conditions, "Ready") != want.ready || harness.ConditionText(r.Status.Conditions, "Learning") != want.learning || r.Status.RecommendedInfo != want.value || !strings.Contains(r.Status.Description, want.says) {
			t.Errorf("%s: Ready %s, Learning %s, %s, want %s, %s, %s: %s", name, harness.ConditionText(r.Status.Conditions, "Ready"), harness.ConditionText(r.Status.Conditions, "Learning"), r.Status.RecommendedInfo, want.ready, want.learning, want.value, r.Status.Description)
		}
	}
}

func checkHPA(t *testing.T, r analysisv1alpha1.Recommendation) {
	t.Helper()

	var e autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler
	if err := json.Unmarshal([]byte(r.Status.RecommendedInfo), &e); err != nil {
		t.Fatalf("parsing the autoscaler of %+v: %v", r.Status, err)
	}

	to := e.Spec.ScaleTargetRef
	if r.Status.Action != analysisv1alpha1.ActionCreate || e.Name != "web" || to.Kind != "Deployment" || to.Name != "web" || to.APIVersion != "apps/v1" ||
		e.Spec.ScaleStrategy != autoscalingv1alpha1.ScaleStrategyPreview || e.Spec.MinReplicas == nil || e.Spec.MaxReplicas < *e.Spec.MinReplicas ||
		len(e.Spec.Metrics) != 1 || e.Spec.Metrics[0].Resource.Name != corev1.ResourceCPU {
		t.Errorf("action %s, %s, want a preview for Deployment web", r.Status.Action, r.Status.RecommendedInfo)
	}
	// The target is a percentage of the request that recommender Resource proposes for the same workload.
	if !strings.Contains(r.Status.Description, "changes together with it") {
		t.Errorf("description %q, want that the target changes together with the request", r.Status.Description)
	}

	if ref := r.Status.TargetRef; ref == nil || ref.Kind != "EffectiveHorizontalPodAutoscaler" {
		t.Errorf("target %+v, want an EffectiveHorizontalPodAutoscaler", ref)
	}
}

// hasSeries checks the number of series of a metric in the namespace of the test.
func hasSeries(f *fixture, name string, want int) error {
	families, err := f.registry.Gather()
	if err != nil {
		return fmt.Errorf("gathering: %w", err)
	}

	n := 0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}

		for _, m := range family.GetMetric() {
			if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "namespace" && l.GetValue() != f.namespace }) {
				continue
			}

			n++
		}
	}

	if n != want {
		return fmt.Errorf("%d series of %s, want %d", n, name, want)
	}

	return nil
}

// TestScalePoint checks that requests and the targets of an HPA on them change together if Crane manages the HPA, and that both are
// proposed, but must not be applied, if it does not.
func TestScalePoint(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{{"Deployment", "foreign", 4, 0.2, 0.2, 300 * mib, 0}, {"Deployment", "owned", 4, 0.2, 0.2, 300 * mib, 0}}
	f.deploy(4, "foreign", "owned")

	hpa := func(name string) *autoscalingv2.HorizontalPodAutoscaler {
		percent := int32(50)
		return &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
				MaxReplicas:    9,
				Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
				}}},
			},
		}
	}

	mine := hpa("owned")
	yes := true
	mine.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: "EffectiveHorizontalPodAutoscaler", Name: "mine", UID: "u", Controller: &yes,
	}}

	rule := f.rule("point", "Resource", "HPA", "Replicas")
	f.create(hpa("foreign"), mine, rule)
	f.start(setup{})
	f.awaitRule(rule, "RoundCompleted")
	all := f.recommendations()
	foreign := all["Resource/foreign"]
	owned := all["Resource/owned"]

	if !strings.Contains(foreign.Status.RecommendedInfo, `"cpu":"1"`) || !strings.Contains(foreign.Status.Description, "cpu stays 1 (an autoscaler acts at 50 % of the request") {
		t.Errorf("the request beside an unmanaged HPA: %+v, want 1 CPU kept", foreign.Status)
	}
	if owned.Status.Action != analysisv1alpha1.ActionPatch || strings.Contains(owned.Status.RecommendedInfo, `"cpu":"1"`) ||
		!strings.Contains(owned.Status.Description, "autoscaler owned acts on the utilization of these requests") {
		t.Errorf("the request beside a managed HPA: %+v, want another one", owned.Status)
	}
	if foreign.Annotations[analysisv1alpha1.AnnotationScalePoint] != "" {
		t.Error("the unmanaged HPA has a scale point, want none")
	}

	if c := harness.ConditionText(owned.Status.Conditions, analysisv1alpha1.ConditionApplicable); c != "absent" {
		t.Errorf("with a managed HPA Applicable is %s, want it absent", c)
	}

	var point struct {
		Kind, Name string
		Targets    []struct {
			Resource string
			From, To int32
		}
	}

	if err := json.Unmarshal([]byte(owned.Annotations[analysisv1alpha1.AnnotationScalePoint]), &point); err != nil {
		t.Fatalf("parsing the scale point of %v: %v", owned.Annotations, err)
	}

	if point.Name != "mine" || len(point.Targets) != 1 || point.Targets[0].Resource != "cpu" || point.Targets[0].From != 50 || point.Targets[0].To <= 50 {
		t.Errorf("scale point %+v, want one target of CPU above 50", point)
	}

	for _, name := range []string{"HPA/foreign", "Replicas/foreign"} {
		if r := all[name]; harness.ConditionText(r.Status.Conditions, analysisv1alpha1.ConditionApplicable) == "absent" && r.Status.RecommendedInfo != "" {
			t.Errorf("%s may be applied beside an unmanaged HPA, want it not: %+v", name, r.Status)
		}
	}
}
