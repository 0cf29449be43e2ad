// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
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

// TestRunNumberLowered checks that lowering the run number of one Recommendation evaluates that one at once, and no other.
func TestRunNumberLowered(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}, {"Deployment", "api", 2, 0.2, 0.2, 300 * mib, 0}}
	f.deploy(2, "web", "api")
	rule := f.rule("asked", "Resource")
	f.create(rule)
	f.start(setup{})
	f.awaitRule(rule, "RoundCompleted")
	before := f.recommendations()

	f.past.set(func(p *history) {
		for i := range p.uses {
			p.uses[i].low, p.uses[i].high = 0.4, 0.4
		}
	})

	web := before["Resource/web"]
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"analysis.crane.io/run-number":"0"}}}`))
	if err := f.Patch(t.Context(), &web, patch); err != nil {
		t.Fatal(err)
	}

	f.eventually("web is evaluated again", func(ctx context.Context) error {
		all, err := f.all(ctx)
		if err != nil {
			return err
		}

		now := all["Resource/web"]
		if now.Annotations[analysisv1alpha1.AnnotationRunNumber] != "1" || now.Status.RecommendedValue == before["Resource/web"].Status.RecommendedValue {
			return fmt.Errorf("annotations %v, value %s", now.Annotations, now.Status.RecommendedValue)
		}

		return nil
	})

	after := f.recommendations()
	if a, b := before["Resource/api"], after["Resource/api"]; a.ResourceVersion != b.ResourceVersion {
		t.Error("the other Recommendation was evaluated, want it unchanged")
	}

	r := f.awaitRule(rule, "RoundCompleted")
	if r.Status.RunNumber != 1 {
		t.Errorf("run number of the rule %d, want 1: the rule must not run", r.Status.RunNumber)
	}
}

// TestAnalyticsOfClusterScopedKinds checks that an Analytics selects nothing outside its namespace: the API server ignores the namespace of a
// list of a cluster-scoped kind. Otherwise each Analytics would have a Recommendation in Crane's namespace for each rule of the cluster.
func TestAnalyticsOfClusterScopedKinds(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	f.deploy(2, "web")
	rules := analysisv1alpha1.ResourceSelector{Kind: "RecommendationRule", APIVersion: analysisv1alpha1.GroupVersion.String()}

	analytics := &analysisv1alpha1.Analytics{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "outside"},
		Spec: analysisv1alpha1.AnalyticsSpec{
			Type:              analysisv1alpha1.AnalysisTypeResource,
			ResourceSelectors: []analysisv1alpha1.ResourceSelector{rules, {Kind: rules.Kind}, {Kind: "Deployment", APIVersion: "apps/v1"}},
		},
	}

	f.create(analytics)
	f.start(setup{})
	f.eventually("the Analytics is evaluated", func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(analytics), analytics); err != nil {
			return err
		}

		if len(analytics.Status.Recommendations) == 0 {
			return errors.New("no Recommendation yet")
		}

		return nil
	})

	for _, m := range analytics.Status.Recommendations {
		if m.TargetRef.Kind != "Deployment" {
			t.Errorf("Recommendation %s/%s for %s %s, want Deployments alone", m.Namespace, m.Name, m.TargetRef.Kind, m.TargetRef.Name)
		}
	}
}

// TestAnalytics checks that an Analytics has a rule with its settings, which is deleted with it.
func TestAnalytics(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	f.deploy(2, "web")
	seconds := int64(7200)

	analytics := &analysisv1alpha1.Analytics{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "old-form"},
		Spec: analysisv1alpha1.AnalyticsSpec{
			Type:               analysisv1alpha1.AnalysisTypeResource,
			ResourceSelectors:  []analysisv1alpha1.ResourceSelector{{Kind: "Deployment", APIVersion: "apps/v1"}},
			CompletionStrategy: &analysisv1alpha1.CompletionStrategy{CompletionStrategyType: analysisv1alpha1.CompletionStrategyPeriodical, PeriodSeconds: &seconds},
			Config:             map[string]string{"resource.cpu-request-margin-fraction": "0.15", "ehpa.fluctuation-threshold": "0"},
		},
	}

	f.create(analytics)
	f.start(setup{})
	found := &analysisv1alpha1.RecommendationRule{}

	find := func(ctx context.Context) error {
		var list analysisv1alpha1.RecommendationRuleList
		if err := f.List(ctx, &list); err != nil {
			return err
		}

		for i := range list.Items {
			if list.Items[i].Annotations[analysisv1alpha1.AnnotationAnalyticsConversion] == string(analytics.UID) {
				*found = list.Items[i]
				return nil
			}
		}

		return errors.New("no rule")
	}

	f.eventually("the Analytics has a rule", find)
	if found.Spec.RunInterval != "2h0m0s" || len(found.Spec.NamespaceSelector.MatchNames) != 1 || found.Spec.NamespaceSelector.MatchNames[0] != f.namespace ||
		!maps.Equal(found.Spec.Recommenders[0].Config, map[string]string{"resource.cpu-request-margin-fraction": "0.15"}) {
		t.Errorf("spec %+v, want the interval, namespace and settings of the Analytics", found.Spec)
	}

	f.awaitRule(found, "RoundCompleted")
	if r, there := f.recommendations()["Resource/web"]; !there || r.Labels[analysisv1alpha1.LabelAnalyticsName] != "old-form" {
		t.Errorf("labels %v, want the name of the Analytics", r.Labels)
	}

	recommendation := f.recommendations()["Resource/web"]
	f.eventually("the Analytics has the status of its rule", func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(analytics), analytics); err != nil {
			return err
		}

		s := analytics.Status
		if len(s.Conditions) != 1 || s.Conditions[0].Reason != "AnalyticsReady" || !strings.Contains(s.Conditions[0].Message, "ignored: ehpa.fluctuation-threshold") ||
			len(s.Recommendations) != 1 || s.Recommendations[0].UID != recommendation.UID || s.Recommendations[0].TargetRef.Name != "web" ||
			s.Recommendations[0].LastStartTime == nil || s.Recommendations[0].Message != "Success" {
			return fmt.Errorf("%+v", s)
		}

		return nil
	})

	broken := analytics.DeepCopy()
	broken.Spec.Config = map[string]string{"resource.cpu-request-percentile": "many"}
	if err := f.Patch(t.Context(), broken, client.MergeFrom(analytics)); err != nil {
		t.Fatal(err)
	}

	f.eventually("the Analytics reports that its recommender cannot run", func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(analytics), analytics); err != nil {
			return err
		}

		if c := analytics.Status.Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != "InvalidRecommender" || !strings.Contains(c.Message, "many") {
			return fmt.Errorf("%+v", c)
		}

		return nil
	})

	was := analytics.DeepCopy() // The controller may write the status concurrently.
	analytics.Spec.CompletionStrategy = nil
	if err := f.Patch(t.Context(), analytics, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}

	f.eventually("the rule is changed", func(ctx context.Context) error {
		if err := find(ctx); err != nil || found.Spec.RunInterval == "" {
			return err
		}

		return fmt.Errorf("run interval %s", found.Spec.RunInterval)
	})

	if err := f.Delete(t.Context(), analytics); err != nil {
		t.Fatal(err)
	}

	f.eventually("the rule is deleted with the Analytics", func(ctx context.Context) error {
		if err := find(ctx); err != nil {
			return nil //nolint:nilerr // the wait ends when the rule is not found
		}

		return errors.New("the rule exists")
	})
}

// TestConfigurationReloaded checks that a changed configuration file is used without a restart and that failed rules run with it at
// once, and that an invalid file is ignored and reported in a metric.
func TestConfigurationReloaded(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	f.deploy(2, "web")
	path := filepath.Join(t.TempDir(), "config.yaml")
	const header = "apiVersion: analysis.crane.io/v1alpha1\nkind: RecommendationConfiguration\nrecommenders:\n"

	write := func(body string) {
		t.Helper()

		if err := os.WriteFile(path+".new", []byte(header+body), 0o600); err != nil {
			t.Fatal(err)
		}

		if err := os.Rename(path+".new", path); err != nil { // atomically, like the files of a ConfigMap
			t.Fatal(err)
		}
	}

	write("- {name: Replicas, acceptedResources: [{kind: Deployment}]}\n")
	file, err := configfile.Open(path, 50*time.Millisecond, clock.RealClock{}, controller.BuiltinRegistry().ParseSettings)
	if err != nil {
		t.Fatal(err)
	}

	rule := f.rule("config", "Resource")
	f.create(rule)
	f.start(setup{settings: file})
	f.awaitRule(rule, "InvalidRecommender")
	write("- {name: Resource, acceptedResources: [{kind: Deployment}], cofig: {}}\n")

	f.eventually("the metric reports the invalid file", func(context.Context) error {
		if s := file.State(); !s.Invalid || s.Failed == 0 {
			return fmt.Errorf("%+v", s)
		}

		return hasSeries(f, "crane_analysis_recommendation_configuration_valid", 1)
	})

	f.awaitRule(rule, "InvalidRecommender")
	write("- {name: Resource, acceptedResources: [{kind: Deployment}], config: {cpu-request-percentile: \"2\"}}\n" +
		"- {name: Replicas, acceptedResources: [{kind: Deployment}]}\n")
	other := f.rule("other", "Replicas")
	f.create(other)

	f.eventually("a bad setting leaves the file in force", func(context.Context) error {
		if s := file.State(); s.Invalid || file.Content().Invalid() == nil {
			return fmt.Errorf("%+v, %w", s, file.Content().Invalid())
		}

		return nil
	})

	f.awaitRule(other, "RoundCompleted")
	f.awaitRule(rule, "InvalidRecommender")
	write("- {name: Resource, acceptedResources: [{kind: Deployment}]}\n")
	f.awaitRule(rule, "RoundCompleted")

	if _, there := f.recommendations()["Resource/web"]; !there {
		t.Error("the rule did not run with the new file, want a Recommendation")
	}
}

// TestChangedDuringItsRun checks that a rule that changes during a run is run again, and that values of the old spec are not
// reported for the new one.
func TestChangedDuringItsRun(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	f.deploy(2, "web")
	rule := f.rule("changed", "Resource")
	rule.Spec.Recommenders[0].Config = map[string]string{"cpu-request-margin-fraction": "0.15"}
	f.create(rule)
	changed := false

	f.past.before = func(ctx context.Context, _ metrics.UsageRequest) error {
		if changed {
			return nil
		}

		changed = true // only in the first query, which belongs to the first run
		r := &analysisv1alpha1.RecommendationRule{}
		if err := f.Get(ctx, client.ObjectKeyFromObject(rule), r); err != nil {
			return err
		}

		r.Spec.Recommenders[0].Config["cpu-request-margin-fraction"] = "1"
		return f.Update(ctx, r)
	}

	f.start(setup{})
	f.awaitRule(rule, "RoundCompleted")
	f.eventually("the value follows from the new spec", func(ctx context.Context) error {
		all, err := f.all(ctx)
		if err != nil {
			return err
		}

		// 0.2 cores with a margin of 100 %.
		if v := all["Resource/web"].Status.RecommendedValue; v == "" || !near(v, 0.4) {
			return fmt.Errorf("recommended value %s", v)
		}

		return nil
	})
}

// TestTwoRules checks that two rules may select the same workload, and that metrics count it once.
func TestTwoRules(t *testing.T) {
	f := newFixture(t)
	f.past.uses = []usageOf{{"Deployment", "web", 2, 0.2, 0.2, 300 * mib, 0}}
	f.deploy(2, "web")
	one := f.rule("one", "Resource")
	two := f.rule("two", "Resource")
	f.create(one, two)
	f.start(setup{})
	f.awaitRule(one, "RoundCompleted")
	f.awaitRule(two, "RoundCompleted")

	var list analysisv1alpha1.RecommendationList
	if err := f.List(t.Context(), &list, client.InNamespace(f.namespace)); err != nil {
		t.Fatal(err)
	}

	if len(list.Items) != 2 || list.Items[0].Name == list.Items[1].Name {
		t.Errorf("%d recommendations, want one of each rule", len(list.Items))
	}
	f.eventually("the target has one series", func(context.Context) error { return hasSeries(f, "crane_analysis_select_targets", 1) })
}
