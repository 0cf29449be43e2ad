// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// requested returns the requests of the only container in a strategic merge patch of a workload.
func requested(t *testing.T, patch string) corev1.ResourceList {
	t.Helper()

	var d struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Name      string
						Resources struct{ Requests corev1.ResourceList }
					}
				}
			}
		}
	}

	if err := json.Unmarshal([]byte(patch), &d); err != nil {
		t.Fatalf("parsing the patch %q: %v", patch, err)
	}

	if len(d.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%q: want one container", patch)
	}

	return d.Spec.Template.Spec.Containers[0].Resources.Requests
}

// near checks that a quantity is within 3 % of a value.
func near(t *testing.T, what string, got resource.Quantity, want float64) {
	t.Helper()

	if v := got.AsApproximateFloat64(); math.Abs(v/want-1) > 0.03 {
		t.Errorf("%s is %s, want %g within 3 %%", what, got.String(), want)
	}
}

// TestRuleToRecommendations checks the Recommendations of a rule: values, formats of gocrane, conditions, annotations and metrics,
// and their deletion with the workload and with the rule.
func TestRuleToRecommendations(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"), deployment("shop", "young"), deployment("shop", "unheard"), deployment("shop", "doomed"),
		statefulSet("shop", "db", "postgres"), deployment("bank", "web"), rule("way", "24h", "shop"))
	craned := startCraned(t, prom.URL())
	eventually(t, "craned ready", func(ctx context.Context) error {
		_, err := harness.Get(ctx, craned.HealthURL+"/readyz")
		return err
	})

	done := awaitRule(t, c, "way", "RoundCompleted")
	if done.Status.LastUpdateTime == nil || done.Status.RunNumber != 1 {
		t.Errorf("status of the rule: %+v, want one run with its time", done.Status)
	}

	recs, err := recommendations(t.Context(), c, "way")
	if err != nil {
		t.Fatal(err)
	}

	if len(recs) != 5 {
		t.Fatalf("%d recommendations, want 5: %v", len(recs), recs)
	}

	checkReady(t, c, recs["shop/web"])
	near(t, "cpu of db", requested(t, recs["shop/db"].Status.RecommendedInfo)[corev1.ResourceCPU], 1.5*1.15)
	near(t, "memory of db", requested(t, recs["shop/db"].Status.RecommendedInfo)[corev1.ResourceMemory], 2048*mib*1.15)

	for name, want := range map[string][3]string{
		"shop/web":     {"True/RecommendationReady", "False/EnoughHistory", "False/Evaluated"},
		"shop/unheard": {"False/NoUsage", "False/NoUsage", "True/NoUsage"},
	} {
		got := [3]string{harness.ConditionText(recs[name].Status.Conditions, "Ready"), harness.ConditionText(recs[name].Status.Conditions, "Learning"), harness.ConditionText(recs[name].Status.Conditions, "Failed")}
		if got != want {
			t.Errorf("conditions of %s: %v, want %v", name, got, want)
		}
	}

	if r := recs["shop/unheard"]; r.Status.RecommendedValue != "" || r.Status.RecommendedInfo != "" || r.Status.Action != "" {
		t.Errorf("a workload without history has the status %+v, want no value", r.Status)
	}

	t.Run("metrics", func(t *testing.T) {
		eventually(t, "series of the recommendation", func(ctx context.Context) error {
			page, err := craned.Metrics(ctx)
			if err != nil {
				return err
			}

			for _, want := range []string{
				`crane_analysis_select_targets{apiversion="apps/v1",namespace="shop",owner_kind="Deployment",owner_name="web",type="Resource"} 1`,
				`crane_analysis_resource_recommendation{apiversion="apps/v1",container="app",namespace="shop",owner_kind="Deployment",owner_name="web",resource="cpu",type="Resource"} 0.2`,
				`crane_analysis_recommendation_execution_total{apiversion="apps/v1",namespace="shop",owner_kind="Deployment",owner_name="web",type="Resource"} 1`,
				`result_status="Success",type="Resource",update_status="Updated"`,
			} {
				if !strings.Contains(page, want) {
					return fmt.Errorf("no %s", want)
				}
			}

			return nil
		})
	})

	t.Run("workload deleted", func(t *testing.T) { testWorkloadDeleted(t, c, craned, recs["shop/doomed"]) })
	t.Run("rule deleted", func(t *testing.T) {
		if err := c.Delete(t.Context(), done); err != nil {
			t.Fatal(err)
		}

		awaitCollected(t.Context(), t, c, "way")
	})

	if err := craned.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}
}

// checkReady checks the Recommendation of a Deployment that uses 0.2 cores and 300 MiB.
func checkReady(t *testing.T, c client.Client, r analysisv1alpha1.Recommendation) {
	t.Helper()

	got := requested(t, r.Status.RecommendedInfo)
	near(t, "cpu of web", got[corev1.ResourceCPU], 0.2*1.15)
	near(t, "memory of web", got[corev1.ResourceMemory], 300*mib*1.15)

	const current = `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]}}}}`
	if r.Status.CurrentInfo != current {
		t.Errorf("currentInfo %s, want %s", r.Status.CurrentInfo, current)
	}
	if r.Status.Action != analysisv1alpha1.ActionPatch || r.Status.LastUpdateTime == nil {
		t.Errorf("status %+v, want action Patch and a time", r.Status)
	}

	cpu := got[corev1.ResourceCPU]
	memory := got[corev1.ResourceMemory]

	value := fmt.Sprintf("resourceRequest:\n  containers:\n  - containerName: app\n    target:\n      cpu: %s\n      memory: %s\n", cpu.String(), memory.String())
	if r.Status.RecommendedValue != value {
		t.Errorf("recommendedValue\n%s\nwant\n%s", r.Status.RecommendedValue, value)
	}

	for key, want := range map[string]string{
		analysisv1alpha1.AnnotationRunNumber: "1", analysisv1alpha1.AnnotationMessage: analysisv1alpha1.MessageSuccess,
	} {
		if r.Annotations[key] != want {
			t.Errorf("annotation %s is %q, want %q", key, r.Annotations[key], want)
		}
	}

	for key, want := range map[string]string{
		analysisv1alpha1.LabelRuleName: "way", analysisv1alpha1.LabelTargetKind: "Deployment", analysisv1alpha1.LabelTargetVersion: "v1",
		analysisv1alpha1.LabelTargetName: "web", analysisv1alpha1.LabelTargetNamespace: "shop", "team": "red",
	} {
		if r.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, r.Labels[key], want)
		}
	}

	target := &appsv1.Deployment{}
	eventually(t, "annotation on the target", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, target); err != nil {
			return err
		}

		if got := target.Annotations[analysisv1alpha1.AnnotationResourceRecommendation]; got != annotationOf(r) {
			return fmt.Errorf("annotation %q", got)
		}

		return nil
	})

	if cpu := target.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu(); cpu.String() != "1" {
		t.Errorf("the workload requests %s, want 1: craned must not change it", cpu)
	}
}

func testWorkloadDeleted(t *testing.T, c client.Client, craned *harness.Craned, rec analysisv1alpha1.Recommendation) {
	target := deployment("shop", "doomed")
	if err := c.Delete(t.Context(), target); err != nil {
		t.Fatal(err)
	}

	eventually(t, "recommendation deleted with its target", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(&rec), &analysisv1alpha1.Recommendation{})
		if apierrors.IsNotFound(err) {
			return nil
		}

		return errors.Join(errors.New("it exists"), err)
	})

	eventually(t, "its series are deleted", func(ctx context.Context) error {
		page, err := craned.Metrics(ctx)
		if err == nil && strings.Contains(page, `owner_name="doomed"`) {
			err = errors.New("the series exist")
		}

		return err
	})
}
