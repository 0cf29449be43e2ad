// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/recommendation/controller"
)

// TestAskedFor: lowering the run number of one Recommendation has that one evaluated, at once, and no other.
func TestAskedFor(t *testing.T) {
	w := newFixture(t)
	w.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}, {"Deployment", "api", 2, 0.2, 0.2, 300 * mib, 0}}
	w.deploy(2, "web", "api")
	rule := w.rule("asked", "Resource")
	w.create(rule)
	w.start(setup{})
	w.complete(rule, "RoundCompleted")
	before := w.recommendations()
	w.past.set(func(p *history) {
		for i := range p.uses {
			p.uses[i].low, p.uses[i].high = 0.4, 0.4
		}
	})
	web := before["Resource/web"]
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"analysis.crane.io/run-number":"0"}}}`))
	if err := w.Patch(t.Context(), &web, patch); err != nil {
		t.Fatal(err)
	}
	w.eventually("web evaluated again", func(ctx context.Context) error {
		all, err := w.all(ctx)
		if err != nil {
			return err
		}
		now := all["Resource/web"]
		if now.Annotations[analysisv1alpha1.AnnotationRunNumber] != "1" || now.Status.RecommendedValue == before["Resource/web"].Status.RecommendedValue {
			return fmt.Errorf("annotations %v, value %s", now.Annotations, now.Status.RecommendedValue)
		}
		return nil
	})
	after := w.recommendations()
	if a, b := before["Resource/api"], after["Resource/api"]; a.ResourceVersion != b.ResourceVersion {
		t.Error("the other one was evaluated, too")
	}
	r := w.complete(rule, "RoundCompleted")
	if r.Status.RunNumber != 1 {
		t.Errorf("run number of the rule %d, want 1: it had no round of its own", r.Status.RunNumber)
	}
}

// TestAnalytics: an Analytics has a rule while it is there, with its settings, and none when it is gone.
func TestAnalytics(t *testing.T) {
	w := newFixture(t)
	w.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	w.deploy(2, "web")
	seconds := int64(7200)
	analytics := &analysisv1alpha1.Analytics{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "old-form"},
		Spec: analysisv1alpha1.AnalyticsSpec{
			Type:               analysisv1alpha1.AnalysisTypeResource,
			ResourceSelectors:  []analysisv1alpha1.ResourceSelector{{Kind: "Deployment", APIVersion: "apps/v1"}},
			CompletionStrategy: &analysisv1alpha1.CompletionStrategy{CompletionStrategyType: analysisv1alpha1.CompletionStrategyPeriodical, PeriodSeconds: &seconds},
			Config:             map[string]string{"cpu-request-margin-fraction": "0.15"},
		},
	}
	w.create(analytics)
	w.start(setup{})
	found := &analysisv1alpha1.RecommendationRule{}
	find := func(ctx context.Context) error {
		var list analysisv1alpha1.RecommendationRuleList
		if err := w.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Annotations[analysisv1alpha1.AnnotationAnalyticsConversion] == string(analytics.UID) {
				*found = list.Items[i]
				return nil
			}
		}
		return errors.New("there is no rule")
	}
	w.eventually("rule of the analytics", find)
	if found.Spec.RunInterval != "2h0m0s" || len(found.Spec.NamespaceSelector.MatchNames) != 1 || found.Spec.NamespaceSelector.MatchNames[0] != w.namespace ||
		found.Spec.Recommenders[0].Config["cpu-request-margin-fraction"] != "0.15" {
		t.Errorf("%+v", found.Spec)
	}
	w.complete(found, "RoundCompleted")
	if r, there := w.recommendations()["Resource/web"]; !there || r.Labels[analysisv1alpha1.LabelAnalyticsName] != "old-form" {
		t.Errorf("%+v", r.Labels)
	}
	w.eventually("condition of the analytics", func(ctx context.Context) error {
		if err := w.Get(ctx, client.ObjectKeyFromObject(analytics), analytics); err != nil {
			return err
		}
		if len(analytics.Status.Conditions) != 1 || analytics.Status.Conditions[0].Reason != "Converted" {
			return fmt.Errorf("%+v", analytics.Status.Conditions)
		}
		return nil
	})
	was := analytics.DeepCopy() // Its controller may write its status meanwhile.
	analytics.Spec.CompletionStrategy = nil
	if err := w.Patch(t.Context(), analytics, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}
	w.eventually("changed rule", func(ctx context.Context) error {
		if err := find(ctx); err != nil || found.Spec.RunInterval == "" {
			return err
		}
		return fmt.Errorf("it runs every %s", found.Spec.RunInterval)
	})
	if err := w.Delete(t.Context(), analytics); err != nil {
		t.Fatal(err)
	}
	w.eventually("rule gone with the analytics", func(ctx context.Context) error {
		if err := find(ctx); err != nil {
			return nil //nolint:nilerr // That is what is waited for.
		}
		return errors.New("it is still there")
	})
}

// TestConfigurationReloaded: a changed file counts without a restart, for rules that had to wait for it at once; a bad one
// leaves the old one in force and is told in a metric.
func TestConfigurationReloaded(t *testing.T) {
	w := newFixture(t)
	w.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	w.deploy(2, "web")
	path := filepath.Join(t.TempDir(), "config.yaml")
	const header = "apiVersion: analysis.crane.io/v1alpha1\nkind: RecommendationConfiguration\nrecommenders:\n"
	write := func(body string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(header+body), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil { // As a ConfigMap is swapped: never half.
			t.Fatal(err)
		}
	}
	write("- {name: Replicas, acceptedResources: [{kind: Deployment}]}\n")
	file, err := configfile.Open(path, 50*time.Millisecond, clock.RealClock{}, controller.ParseSettings)
	if err != nil {
		t.Fatal(err)
	}
	rule := w.rule("config", "Resource")
	w.create(rule)
	w.start(setup{settings: file})
	w.complete(rule, "InvalidRecommender")
	write("- {name: Resource, acceptedResources: [{kind: Deployment}], config: {cpu-request-percentile: \"2\"}}\n")
	w.eventually("bad file told", func(context.Context) error {
		if s := file.State(); !s.Invalid || s.Failed == 0 {
			return fmt.Errorf("%+v", s)
		}
		return hasSeries(w, "crane_analysis_recommendation_configuration_valid", 1)
	})
	w.complete(rule, "InvalidRecommender")
	write("- {name: Resource, acceptedResources: [{kind: Deployment}]}\n")
	w.complete(rule, "RoundCompleted")
	if _, there := w.recommendations()["Resource/web"]; !there {
		t.Error("the rule was not run with the new file")
	}
}

// TestChangedDuringItsRun: a rule that changes while it runs is run as it then is; nothing of the old one is taken for the
// new one's.
func TestChangedDuringItsRun(t *testing.T) {
	w := newFixture(t)
	w.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	w.deploy(2, "web")
	rule := w.rule("changed", "Resource")
	rule.Spec.Recommenders[0].Config = map[string]string{"cpu-request-margin-fraction": "0.15"}
	w.create(rule)
	changed := false
	w.past.before = func(ctx context.Context, _ metrics.UsageRequest) error {
		if changed {
			return nil
		}
		changed = true // Only the first reading, which is that of the first pass, comes here.
		r := &analysisv1alpha1.RecommendationRule{}
		if err := w.Get(ctx, client.ObjectKeyFromObject(rule), r); err != nil {
			return err
		}
		r.Spec.Recommenders[0].Config["cpu-request-margin-fraction"] = "1"
		return w.Update(ctx, r)
	}
	w.start(setup{})
	w.complete(rule, "RoundCompleted")
	w.eventually("the number of the new rule", func(ctx context.Context) error {
		all, err := w.all(ctx)
		if err != nil {
			return err
		}
		// 0.2 cores and as much again.
		if v := all["Resource/web"].Status.RecommendedValue; v == "" || !near(v, 0.4) {
			return fmt.Errorf("it is %s", v)
		}
		return nil
	})
}

// TestTwoRules: rules that select the same workload do not conflict, and metrics report it once.
func TestTwoRules(t *testing.T) {
	w := newFixture(t)
	w.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	w.deploy(2, "web")
	one, two := w.rule("one", "Resource"), w.rule("two", "Resource")
	w.create(one, two)
	w.start(setup{})
	w.complete(one, "RoundCompleted")
	w.complete(two, "RoundCompleted")
	var list analysisv1alpha1.RecommendationList
	if err := w.List(t.Context(), &list, client.InNamespace(w.namespace)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 || list.Items[0].Name == list.Items[1].Name {
		t.Errorf("%d recommendations, want one of each rule", len(list.Items))
	}
	w.eventually("one series of the target", func(context.Context) error { return hasSeries(w, "crane_analysis_select_targets", 1) })
}
