// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// TestPrometheusDownThenUp checks that a failing data source creates no objects and is reported in a condition, an event and
// readiness, and that the rule completes after the source has recovered.
func TestPrometheusDownThenUp(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	if err := prom.Stop(); err != nil {
		t.Fatal(err)
	}

	create(t, c, deployment("shop", "web"), rule("down", "24h", "shop"))
	craned := startCraned(t, prom.URL())

	failed := awaitRule(t, c, "down", "DataSourceFailed")
	if failed.Status.LastUpdateTime != nil || failed.Status.RunNumber != 0 {
		t.Errorf("after a failed run the status is %+v, want no completed run", failed.Status)
	}
	if recs, err := recommendations(t.Context(), c, "down"); err != nil || len(recs) > 0 {
		t.Errorf("recommendations without history: %v, %v, want none", recs, err)
	}
	if _, err := harness.Get(t.Context(), craned.HealthURL+"/readyz"); err == nil {
		t.Error("craned is ready while its data source does not answer, want it unready")
	}

	eventually(t, "event about the rule", func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := c.List(ctx, &events); err != nil {
			return err
		}

		for _, e := range events.Items {
			if e.Regarding.Kind == "RecommendationRule" && e.Regarding.Name == "down" && e.Reason == "DataSourceFailed" {
				return nil
			}
		}

		return errors.New("no such event")
	})

	if err := prom.Start(); err != nil {
		t.Fatal(err)
	}

	awaitRule(t, c, "down", "RoundCompleted")
	recs, err := recommendations(t.Context(), c, "down")
	if err != nil || harness.ConditionText(recs["shop/web"].Status.Conditions, "Ready") != "True/RecommendationReady" {
		t.Errorf("after the recovery: %v, %v, want web Ready", recs, err)
	}
}

// TestGoodValueSurvivesFailure checks that a failed run keeps the value of the last completed run.
func TestGoodValueSurvivesFailure(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"), rule("keep", "24h", "shop"))
	startCraned(t, prom.URL())
	awaitRule(t, c, "keep", "RoundCompleted")

	before, err := recommendations(t.Context(), c, "keep")
	if err != nil {
		t.Fatal(err)
	}

	if err := prom.Stop(); err != nil {
		t.Fatal(err)
	}

	r := &analysisv1alpha1.RecommendationRule{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "keep"}, r); err != nil {
		t.Fatal(err)
	}

	r.Spec.RunInterval = "12h" // A change of the spec starts a run.
	if err := c.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}

	awaitRule(t, c, "keep", "DataSourceFailed")
	after, err := recommendations(t.Context(), c, "keep")
	if err != nil {
		t.Fatal(err)
	}

	if a, b := before["shop/web"].Status, after["shop/web"].Status; a.RecommendedValue == "" || a.RecommendedValue != b.RecommendedValue {
		t.Errorf("the value changed from %q to %q, want it kept", a.RecommendedValue, b.RecommendedValue)
	}
}

// TestKilledAndRestarted checks that craned writes nothing after a restart if all runs are completed.
func TestKilledAndRestarted(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"), statefulSet("shop", "db", "postgres"), rule("again", "", "shop"))
	first := startCraned(t, prom.URL())
	awaitRule(t, c, "again", "RoundCompleted")
	awaitAnnotated(t, c, "shop", "web")
	first.Kill()
	before := versions(t, c, "again")

	second := startCraned(t, prom.URL())
	eventually(t, "the second craned leads and is ready", func(ctx context.Context) error {
		if _, err := harness.Get(ctx, second.HealthURL+"/readyz"); err != nil {
			return err
		}

		page, err := second.Metrics(ctx)
		if err == nil && !containsLine(page, `crane_analysis_resource_recommendation{apiversion="apps/v1",container="app"`) {
			err = errors.New("it has not reconciled the recommendations")
		}

		return err
	})

	if err := second.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}
	if after := versions(t, c, "again"); !maps.Equal(before, after) {
		t.Errorf("objects were written again:\nbefore %v\nafter %v, want no change", before, after)
	}
}

// TestAPIServerRestarted checks that craned keeps running and reconciling while the API server restarts.
func TestAPIServerRestarted(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"))

	// The lease is longer than the restart, like the default of 15s with a fast API server.
	craned := startCraned(t, prom.URL(), "--lease-duration=60s", "--lease-renew-period=50s")
	eventually(t, "craned ready", func(ctx context.Context) error {
		_, err := harness.Get(ctx, craned.HealthURL+"/readyz")
		return err
	})

	if err := control.StopComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	if err := control.StartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	eventually(t, "rule created", func(ctx context.Context) error {
		// An earlier attempt may have succeeded although its response was lost.
		return client.IgnoreAlreadyExists(c.Create(ctx, rule("after", "24h", "shop")))
	})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := c.Delete(ctx, rule("after", "", "shop")); err != nil {
			t.Error(err)
		}

		awaitCollected(ctx, t, c, "after")
	})

	awaitRule(t, c, "after", "RoundCompleted")
	select {
	case <-craned.Done():
		t.Errorf("craned ended: %v, want it running", craned.Err())
	default:
	}
}

// TestTwoRulesOneWorkload checks that each of two rules has a Recommendation for a workload, that the annotation of the workload
// contains one of them, and that the metrics contain one series.
func TestTwoRulesOneWorkload(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	one := rule("one", "24h", "shop")
	two := rule("two", "24h", "shop")
	two.Spec.Recommenders[0].Config["cpu-request-margin-fraction"] = "0.5"

	create(t, c, deployment("shop", "web"), statefulSet("shop", "db", "postgres"), one)
	craned := startCraned(t, prom.URL())
	awaitRule(t, c, "one", "RoundCompleted")
	create(t, c, two)
	awaitRule(t, c, "two", "RoundCompleted")
	var first, second analysisv1alpha1.Recommendation

	eventually(t, "the second Recommendation names the adopted first one", func(ctx context.Context) error {
		a, err := recommendations(ctx, c, "one")
		if err != nil {
			return err
		}

		b, err := recommendations(ctx, c, "two")
		if err != nil {
			return err
		}

		first = a["shop/web"]
		second = b["shop/web"]

		// Objects created within one second are ordered by their names.
		got := []string{harness.ConditionText(first.Status.Conditions, "Adopted"), harness.ConditionText(second.Status.Conditions, "Adopted")}
		if got[0] == "absent" && got[1] == "False/OtherRecommendationAdopted" || got[1] == "absent" && got[0] == "False/OtherRecommendationAdopted" {
			return nil
		}

		return fmt.Errorf("conditions %v", got)
	})

	// The rule has one event, which counts, instead of one on each Recommendation.
	eventually(t, "an event on a rule", func(ctx context.Context) error {
		var about []eventsv1.Event
		for _, name := range []string{"one", "two"} {
			found, err := harness.Events(ctx, c, metav1.NamespaceDefault, "RecommendationRule", name, "OtherRecommendationAdopted")
			if err != nil {
				return err
			}

			about = append(about, found...)
		}

		if len(about) != 1 || about[0].Type != corev1.EventTypeWarning || about[0].Series == nil || about[0].Series.Count < 2 {
			return fmt.Errorf("events %+v", about)
		}

		return nil
	})

	var all eventsv1.EventList
	if err := c.List(t.Context(), &all, client.InNamespace("shop")); err != nil {
		t.Fatal(err)
	}

	for _, e := range all.Items {
		if e.Regarding.Kind == "Recommendation" && e.Type == corev1.EventTypeWarning {
			t.Errorf("event on recommendation %s: %s: %s, want no warning", e.Regarding.Name, e.Reason, e.Note)
		}
	}

	near(t, "cpu by the first rule", requested(t, first.Status.RecommendedInfo)["cpu"], 0.2*1.15)
	near(t, "cpu by the second rule", requested(t, second.Status.RecommendedInfo)["cpu"], 0.2*1.5)

	adopted := first
	if harness.ConditionText(first.Status.Conditions, "Adopted") != "absent" {
		adopted = second
	}

	target := &appsv1.Deployment{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, target); err != nil {
		t.Fatal(err)
	}

	if got := target.Annotations[analysisv1alpha1.AnnotationResourceRecommendation]; got != annotationOf(adopted) {
		t.Errorf("annotation %q, want the value of the adopted recommendation, %q", got, adopted.Status.RecommendedValue)
	}
	if _, err := craned.Metrics(t.Context()); err != nil {
		t.Errorf("metrics with two rules on one workload: %v", err)
	}

	// When the first one is no longer adopted, the second one is.
	other := second
	if adopted.Name == second.Name {
		other = first
	}

	was := adopted.DeepCopy()
	adopted.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeStatus
	if err := c.Patch(t.Context(), &adopted, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the second Recommendation is adopted", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(target), target); err != nil {
			return err
		}

		if got := target.Annotations[analysisv1alpha1.AnnotationResourceRecommendation]; got != annotationOf(other) {
			return fmt.Errorf("annotation %q", got)
		}

		return nil
	})
}

// TestBadRules checks that the condition of an invalid rule states the fault, and that its valid parts work.
func TestBadRules(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	unknown := rule("unknown", "24h", "shop")
	unknown.Spec.Recommenders[0].Name = "Nonsense"
	setting := rule("setting", "24h", "shop")
	setting.Spec.Recommenders[0].Config["cpu-request-percentile"] = "ninety"

	kind := rule("kind", "24h", "shop")
	kind.Spec.ResourceSelectors = append(kind.Spec.ResourceSelectors,
		analysisv1alpha1.ResourceSelector{Kind: "Rollout", APIVersion: "argoproj.io/v1alpha1"})
	create(t, c, deployment("shop", "web"), unknown, setting, kind)
	startCraned(t, prom.URL())

	for name, reason := range map[string]string{
		"unknown": "InvalidRecommender", "setting": "InvalidRecommender", "kind": "SelectorFailed",
	} {
		r := awaitRule(t, c, name, reason)
		recs, err := recommendations(t.Context(), c, name)
		if err != nil {
			t.Fatal(err)
		}

		if want := map[bool]int{true: 1, false: 0}[name == "kind"]; len(recs) != want {
			t.Errorf("rule %s: %d recommendations, want %d; %s", name, len(recs), want,
				meta.FindStatusCondition(r.Status.Conditions, "Ready").Message)
		}
	}
}

// TestNothingDeletedAfterIncompleteRun checks that no Recommendation is deleted while a selector cannot be resolved, and that
// those of unselected workloads are deleted by the next complete run.
func TestNothingDeletedAfterIncompleteRun(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	r := rule("part", "24h", "shop", "bank")
	create(t, c, deployment("shop", "web"), deployment("bank", "web"), r)
	startCraned(t, prom.URL())
	awaitRule(t, c, "part", "RoundCompleted")

	change := func(edit func(*analysisv1alpha1.RecommendationRule)) {
		t.Helper()

		if err := c.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil {
			t.Fatal(err)
		}

		edit(r)
		if err := c.Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}

	change(func(r *analysisv1alpha1.RecommendationRule) {
		r.Spec.NamespaceSelector.MatchNames = []string{"shop"}
		r.Spec.ResourceSelectors = append(r.Spec.ResourceSelectors, analysisv1alpha1.ResourceSelector{Kind: "Rollout", APIVersion: "argoproj.io/v1alpha1"})
	})
	awaitRule(t, c, "part", "SelectorFailed")

	if recs, err := recommendations(t.Context(), c, "part"); err != nil || len(recs) != 2 {
		t.Errorf("with a failed selector: %d recommendations, want 2; %v", len(recs), err)
	}

	change(func(r *analysisv1alpha1.RecommendationRule) { r.Spec.ResourceSelectors = r.Spec.ResourceSelectors[:2] })
	awaitRule(t, c, "part", "RoundCompleted")

	recs, err := recommendations(t.Context(), c, "part")
	if err != nil || len(recs) != 1 || recs["shop/web"].Name == "" {
		t.Errorf("after a complete run: %v, %v; want the one in shop", recs, err)
	}
}

// TestStandbyTakesOver checks that a standby becomes ready, and leads after the leader has stopped.
func TestStandbyTakesOver(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"))
	leader := startCraned(t, prom.URL())
	eventually(t, "first leads", leads(leader))

	standby := startCraned(t, prom.URL())
	eventually(t, "standby ready", func(ctx context.Context) error {
		_, err := harness.Get(ctx, standby.HealthURL+"/readyz")
		return err
	})
	began := time.Now()

	if err := leader.Terminate(t); err != nil {
		t.Errorf("the leader ended with %v", err)
	}

	eventually(t, "standby leads", leads(standby))
	t.Logf("takeover after a graceful stop: %s", time.Since(began).Round(100*time.Millisecond))
	create(t, c, rule("handover", "24h", "shop"))
	awaitRule(t, c, "handover", "RoundCompleted")
}

func leads(p *harness.Craned) func(context.Context) error {
	return func(ctx context.Context) error {
		page, err := p.Metrics(ctx)
		if err == nil && !containsLine(page, `leader_election_master_status{name="craned"} 1`) {
			err = errors.New("it does not lead")
		}

		return err
	}
}

func awaitAnnotated(t *testing.T, c client.Client, namespace, name string) {
	t.Helper()

	eventually(t, "annotation on "+name, func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
			return err
		}

		if d.Annotations[analysisv1alpha1.AnnotationResourceRecommendation] == "" {
			return errors.New("no annotation")
		}

		return nil
	})
}

// versions returns the resource versions of the objects that a rule affects.
func versions(t *testing.T, c client.Client, name string) map[string]string {
	t.Helper()

	out := map[string]string{}
	r := &analysisv1alpha1.RecommendationRule{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, r); err != nil {
		t.Fatal(err)
	}

	out["rule"] = r.ResourceVersion
	recs, err := recommendations(t.Context(), c, name)
	if err != nil {
		t.Fatal(err)
	}

	for key := range recs {
		out[key] = recs[key].ResourceVersion
	}

	var deployments appsv1.DeploymentList
	if err := c.List(t.Context(), &deployments, client.InNamespace("shop")); err != nil {
		t.Fatal(err)
	}

	for i := range deployments.Items {
		// The controller manager writes the status of Deployments; craned writes only the annotation.
		out["deployment/"+deployments.Items[i].Name] = deployments.Items[i].Annotations[analysisv1alpha1.AnnotationResourceRecommendation]
	}

	return out
}
