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
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// TestPrometheusDownThenUp: a source that does not answer leaves no objects behind, is told in a condition, an event
// and readiness, and its return is noticed without help.
func TestPrometheusDownThenUp(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	if err := prom.Stop(); err != nil {
		t.Fatal(err)
	}
	create(t, c, deployment("shop", "web"), rule("down", "24h", "shop"))
	craned := startCraned(t, prom.URL())
	failed := complete(t, c, "down", "DataSourceFailed")
	if failed.Status.LastUpdateTime != nil || failed.Status.RunNumber != 0 {
		t.Errorf("a round that read nothing counts as done: %+v", failed.Status)
	}
	if recs, err := recommendations(t.Context(), c, "down"); err != nil || len(recs) > 0 {
		t.Errorf("recommendations without history: %v, %v", recs, err)
	}
	if _, err := harness.Get(t.Context(), "http://"+craned.probes+"/readyz"); err == nil {
		t.Error("craned is ready while its data source does not answer")
	}
	eventually(t, "event on the rule", func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := c.List(ctx, &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Regarding.Kind == "RecommendationRule" && e.Regarding.Name == "down" && e.Reason == "DataSourceFailed" {
				return nil
			}
		}
		return errors.New("there is none")
	})
	if err := prom.Start(); err != nil {
		t.Fatal(err)
	}
	complete(t, c, "down", "RoundCompleted")
	recs, err := recommendations(t.Context(), c, "down")
	if err != nil || condition(recs["shop/web"], "Ready") != "True/RecommendationReady" {
		t.Errorf("after the return: %v, %v", recs, err)
	}
}

// TestGoodValueSurvivesFailure: a round that fails later leaves the last good value as it is.
func TestGoodValueSurvivesFailure(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"), rule("keep", "24h", "shop"))
	startCraned(t, prom.URL())
	complete(t, c, "keep", "RoundCompleted")
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
	r.Spec.RunInterval = "12h" // A change of the spec asks for a round.
	if err := c.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	complete(t, c, "keep", "DataSourceFailed")
	after, err := recommendations(t.Context(), c, "keep")
	if err != nil {
		t.Fatal(err)
	}
	if a, b := before["shop/web"].Status, after["shop/web"].Status; a.RecommendedValue == "" || a.RecommendedValue != b.RecommendedValue {
		t.Errorf("the value was %q and is %q", a.RecommendedValue, b.RecommendedValue)
	}
}

// TestKilledAndRestarted: a craned that is killed and started again finds everything done and writes nothing.
func TestKilledAndRestarted(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"), statefulSet("shop", "db", "postgres"), rule("again", "", "shop"))
	first := startCraned(t, prom.URL())
	complete(t, c, "again", "RoundCompleted")
	waitAnnotated(t, c, "shop", "web")
	first.Kill()
	before := versions(t, c, "again")

	second := startCraned(t, prom.URL())
	eventually(t, "the second craned leads and is ready", func(ctx context.Context) error {
		if _, err := harness.Get(ctx, "http://"+second.probes+"/readyz"); err != nil {
			return err
		}
		page, err := harness.Get(ctx, "http://"+second.metrics+"/metrics")
		if err == nil && !containsLine(page, `crane_analysis_resource_recommendation{apiversion="apps/v1",container="app"`) {
			err = errors.New("it has not looked at the recommendations yet")
		}
		return err
	})
	if err := second.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}
	if after := versions(t, c, "again"); !maps.Equal(before, after) {
		t.Errorf("objects were written again:\nbefore %v\nafter  %v", before, after)
	}
}

// TestAPIServerRestarted: craned outlives the API server, or ends and can be started again, and carries on.
func TestAPIServerRestarted(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"))
	// The lease outlasts the restart, as the default of 15s does where an API server comes back quickly.
	craned := startCraned(t, prom.URL(), "--lease-duration=60s", "--lease-renew-period=50s")
	eventually(t, "craned ready", func(ctx context.Context) error {
		_, err := harness.Get(ctx, "http://"+craned.probes+"/readyz")
		return err
	})
	if err := control.StopComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := control.StartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	eventually(t, "rule created", func(ctx context.Context) error {
		// It may be there although the answer was lost.
		return client.IgnoreAlreadyExists(c.Create(ctx, rule("after", "24h", "shop")))
	})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := c.Delete(ctx, rule("after", "", "shop")); err != nil {
			t.Error(err)
		}
		collected(ctx, t, c, "after")
	})
	complete(t, c, "after", "RoundCompleted")
	select {
	case <-craned.Done():
		t.Errorf("craned ended: %v", craned.Err())
	default:
	}
}

// TestTwoRulesOneWorkload: each rule has a recommendation of its own, one of them is written on the workload, and the
// metrics hold one series.
func TestTwoRulesOneWorkload(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	one, two := rule("one", "24h", "shop"), rule("two", "24h", "shop")
	two.Spec.Recommenders[0].Config["cpu-request-margin-fraction"] = "0.5"
	create(t, c, deployment("shop", "web"), one)
	craned := startCraned(t, prom.URL())
	complete(t, c, "one", "RoundCompleted")
	create(t, c, two)
	complete(t, c, "two", "RoundCompleted")
	var first, second analysisv1alpha1.Recommendation
	eventually(t, "the second says that the first is adopted", func(ctx context.Context) error {
		a, err := recommendations(ctx, c, "one")
		if err != nil {
			return err
		}
		b, err := recommendations(ctx, c, "two")
		if err != nil {
			return err
		}
		first, second = a["shop/web"], b["shop/web"]
		// Two objects made within one second are told apart by their names.
		got := []string{condition(first, "Adopted"), condition(second, "Adopted")}
		if got[0] == "absent" && got[1] == "False/OtherRecommendationAdopted" || got[1] == "absent" && got[0] == "False/OtherRecommendationAdopted" {
			return nil
		}
		return fmt.Errorf("conditions %v", got)
	})
	near(t, "cpu by the first rule", requested(t, first.Status.RecommendedInfo)["cpu"], 0.2*1.15)
	near(t, "cpu by the second rule", requested(t, second.Status.RecommendedInfo)["cpu"], 0.2*1.5)
	adopted := first
	if condition(first, "Adopted") != "absent" {
		adopted = second
	}
	target := &appsv1.Deployment{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, target); err != nil {
		t.Fatal(err)
	}
	if got := target.Annotations[analysisv1alpha1.AnnotationResourceRecommendation]; got != adopted.Status.RecommendedValue {
		t.Errorf("the workload says %q, the adopted recommendation %q", got, adopted.Status.RecommendedValue)
	}
	if _, err := harness.Get(t.Context(), "http://"+craned.metrics+"/metrics"); err != nil {
		t.Errorf("metrics with two rules on one workload: %v", err)
	}

	// The adopted one steps back: the other takes its place.
	other := second
	if adopted.Name == second.Name {
		other = first
	}
	was := adopted.DeepCopy()
	adopted.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeStatus
	if err := c.Patch(t.Context(), &adopted, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other is adopted", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(target), target); err != nil {
			return err
		}
		if got := target.Annotations[analysisv1alpha1.AnnotationResourceRecommendation]; got != other.Status.RecommendedValue {
			return fmt.Errorf("the workload says %q", got)
		}
		return nil
	})
}

// TestBadRules: what is wrong with a rule is said in its condition; the rest of the rule works.
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
		r := complete(t, c, name, reason)
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

// TestNothingDeletedOnPartOfTheTruth: while a selector cannot be resolved, recommendations of what is out of sight
// stay; once all are resolved, those that are no longer selected go.
func TestNothingDeletedOnPartOfTheTruth(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	r := rule("part", "24h", "shop", "bank")
	create(t, c, deployment("shop", "web"), deployment("bank", "web"), r)
	startCraned(t, prom.URL())
	complete(t, c, "part", "RoundCompleted")

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
	complete(t, c, "part", "SelectorFailed")
	if recs, err := recommendations(t.Context(), c, "part"); err != nil || len(recs) != 2 {
		t.Errorf("with a selector that failed: %d recommendations, want both; %v", len(recs), err)
	}
	change(func(r *analysisv1alpha1.RecommendationRule) { r.Spec.ResourceSelectors = r.Spec.ResourceSelectors[:2] })
	complete(t, c, "part", "RoundCompleted")
	recs, err := recommendations(t.Context(), c, "part")
	if err != nil || len(recs) != 1 || recs["shop/web"].Name == "" {
		t.Errorf("after a complete round: %v, %v; want the one in shop", recs, err)
	}
}

// TestStandbyTakesOver: the standby acts only after the leader has gone, and then soon.
func TestStandbyTakesOver(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"))
	leader := startCraned(t, prom.URL())
	eventually(t, "first leads", leads(leader))
	standby := startCraned(t, prom.URL())
	eventually(t, "standby ready", func(ctx context.Context) error {
		_, err := harness.Get(ctx, "http://"+standby.probes+"/readyz")
		return err
	})
	began := time.Now()
	if err := leader.Terminate(t); err != nil {
		t.Errorf("the leader ended with %v", err)
	}
	eventually(t, "standby leads", leads(standby))
	t.Logf("takeover after an orderly stop: %s", time.Since(began).Round(100*time.Millisecond))
	create(t, c, rule("handover", "24h", "shop"))
	complete(t, c, "handover", "RoundCompleted")
}

func leads(p *process) func(context.Context) error {
	return func(ctx context.Context) error {
		page, err := harness.Get(ctx, "http://"+p.metrics+"/metrics")
		if err == nil && !containsLine(page, `leader_election_master_status{name="craned"} 1`) {
			err = errors.New("it does not lead")
		}
		return err
	}
}

func waitAnnotated(t *testing.T, c client.Client, namespace, name string) {
	t.Helper()
	eventually(t, "annotation on "+name, func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
			return err
		}
		if d.Annotations[analysisv1alpha1.AnnotationResourceRecommendation] == "" {
			return errors.New("it is not there")
		}
		return nil
	})
}

// versions are the resource versions of all that a rule leads to.
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
		// The controller manager writes the status of Deployments; the annotation is what craned would write.
		out["deployment/"+deployments.Items[i].Name] = deployments.Items[i].Annotations[analysisv1alpha1.AnnotationResourceRecommendation]
	}
	return out
}
