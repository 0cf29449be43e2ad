// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
)

// listSeries returns the listing of rules on a server that has some series; nil without rules.
func listSeries(t testing.TB, rules *promadapter.Rules, series ...string) *promadapter.Listing {
	t.Helper()

	if rules == nil {
		return nil
	}

	listing, err := rules.List(t.Context(), nil, func(context.Context, string) ([]string, error) { return series, nil })
	if err != nil {
		t.Fatal(err)
	}

	return listing
}

func parseRules(t testing.TB, text string) *promadapter.Rules {
	t.Helper()

	rules, err := promadapter.Parse([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}

	return rules
}

// catchAll are two rules that the name of any metric fits.
const catchAll = `
rules:
- seriesQuery: '{__name__=~"^container_.*",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "^container_(.*)_seconds_total$"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)'
- seriesQuery: '{namespace!="",__name__!~"^container_.*"}'
  seriesFilters: [{isNot: ".*_total$"}]
  resources: {template: "<<.Resource>>"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
`

// TestForecastByTheServedRule checks that the forecast of a Pods metric reads the series that the adapter serves, that the status names the
// rule, and that the query stays while the metric has no series.
func TestForecastByTheServedRule(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web(func(e *scaler) {
		q := resource.MustParse("5")
		e.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "kube_pod_status_ready"},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &q},
		}}}
	}))
	query := func() string {
		t.Helper()

		tsp := &predictionv1alpha1.TimeSeriesPrediction{}
		if err := b.Client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "ehpa-web"}, tsp); err != nil {
			return ""
		}

		return tsp.Spec.PredictionMetrics[0].ExpressionQuery.Expression
	}

	b.rules = parseRules(t, catchAll)
	b.reconcile(t, "web")
	if got := query(); got != "" {
		t.Errorf("query before the series are listed = %s, want none", got)
	}

	b.series = listSeries(t, b.rules, "up")
	e, _ := b.reconcile(t, "web")
	if c := meta.FindStatusCondition(e.Status.Conditions, "PredictionReady"); query() != "" || !strings.Contains(c.Message, "no rule of prometheus-adapter's configuration finds series of it") {
		t.Errorf("without series the query is %s and PredictionReady %q, want none, and the reason", query(), c.Message)
	}

	const want = `sum(sum(kube_pod_status_ready{namespace="shop",pod=~"(web)-[a-z0-9]{1,10}-[a-z0-9]{5}"}) by (pod))`

	b.series = listSeries(t, b.rules, "kube_pod_status_ready")
	b.reconcile(t, "web")
	if got := query(); got != want {
		t.Errorf("query = %s, want %s", got, want)
	}

	b.writeForecast(t, "ehpa-web", "0.5", 30)
	e, _ = b.reconcile(t, "web")
	c := meta.FindStatusCondition(e.Status.Conditions, "PredictionReady")
	if c.Status != metav1.ConditionTrue || c.Message != "pods.kube_pod_status_ready is defined by rules[1] with the series kube_pod_status_ready" {
		t.Errorf("PredictionReady = %s %q, want True with the rule and the series", c.Status, c.Message)
	}

	b.series = listSeries(t, b.rules)
	b.reconcile(t, "web")
	if got := query(); got != want {
		t.Errorf("query while the metric has no series = %s, want that of before, with its history", got)
	}
}

// TestRefusedRulesAreReported checks that the status names rules that are not in force.
func TestRefusedRulesAreReported(t *testing.T) {
	b := newFixture(t, deployment("web", 4), web())
	e, _ := b.reconcile(t, "web")
	if got := conditionText(e, "MetricRulesReady"); got != "" {
		t.Errorf("MetricRulesReady without a configuration = %s, want none", got)
	}

	b.rules = parseRules(t, catchAll)
	e, _ = b.reconcile(t, "web")
	if got := conditionText(e, "MetricRulesReady"); got != "True/RulesInForce" {
		t.Errorf("MetricRulesReady = %s, want True/RulesInForce", got)
	}

	b.rules = parseRules(t, catchAll+"- {seriesQuery: 'a{', metricsQuery: a}")
	e, _ = b.reconcile(t, "web")
	c := meta.FindStatusCondition(e.Status.Conditions, "MetricRulesReady")
	if c.Status != metav1.ConditionFalse || c.Reason != "RulesRefused" || !strings.Contains(c.Message, "rules[2]") {
		t.Errorf("MetricRulesReady = %s/%s %q, want False/RulesRefused with rules[2]", c.Status, c.Reason, c.Message)
	}

	// A rule that Prometheus refuses to list defines no metric either.
	b.rules = parseRules(t, catchAll)
	b.series, _ = b.rules.List(t.Context(), nil, func(context.Context, string) ([]string, error) {
		return nil, &prometheus.Error{Kind: prometheus.Refused}
	})
	e, _ = b.reconcile(t, "web")
	c = meta.FindStatusCondition(e.Status.Conditions, "MetricRulesReady")
	if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "rules[0]: Prometheus refuses") || !strings.Contains(c.Message, "rules[1]: Prometheus refuses") {
		t.Errorf("MetricRulesReady = %s/%s %q, want False with rules[0] and rules[1]", c.Status, c.Reason, c.Message)
	}
}

func TestRulesWatcher(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	series := []string{"a"}
	var failure error
	clock := clocktesting.NewFakeClock(noon())
	f := &RulesWatcher{File: path, Clock: clock, Query: func(context.Context, string, time.Time) ([]metrics.Sample, error) {
		var out []metrics.Sample
		for _, name := range series {
			out = append(out, metrics.Sample{Labels: metrics.Labels{"__name__": name}, Value: 1})
		}

		return out, failure
	}}

	if _, err := f.refresh(t.Context()); err == nil {
		t.Error("refresh with a file that does not exist returned no error, want one")
	}
	if !f.Current().Pending {
		t.Error("Current is not pending before the rules are read, want it pending")
	}

	write("externalRules: [{seriesQuery: a, metricsQuery: 'a'}]")
	changed, err := f.refresh(t.Context())
	first := f.Current()
	if err != nil || !changed || first.Pending || !first.Rules.HasExternal(first.Series, "a") {
		t.Errorf("refresh: changed %v, error %v, rules %+v, want rules with their series", changed, err, first)
	}
	if changed, err := f.refresh(t.Context()); changed || err != nil {
		t.Errorf("refresh of the same file: changed %v, error %v, want no change", changed, err)
	}

	series = nil
	if changed, _ := f.refresh(t.Context()); changed {
		t.Error("refresh within the listing interval reports a change, want none")
	}

	clock.Step(listInterval)
	if changed, err := f.refresh(t.Context()); !changed || err != nil || f.Current().Rules.HasExternal(f.Current().Series, "a") {
		t.Errorf("refresh without series: changed %v, error %v, want no metric", changed, err)
	}

	clock.Step(listInterval)
	failure = errors.New("down")
	if changed, err := f.refresh(t.Context()); changed || !errors.Is(err, failure) {
		t.Errorf("refresh while Prometheus is down: changed %v, error %v, want the error and no change", changed, err)
	}

	write("externalRules: [")
	changed, err = f.refresh(t.Context())
	if now := f.Current(); !changed || err == nil || now.Rules != first.Rules || now.Problem == nil {
		t.Errorf("refresh of no YAML: changed %v, error %v, want the problem and the rules of before", changed, err)
	}

	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "adapter"}, Data: map[string]string{"config.yaml": "rules: []"}}
	b := newFixture(t, m)

	f = &RulesWatcher{ConfigMap: client.ObjectKeyFromObject(m), Key: "config.yaml", Reader: b.Client, Clock: clock}
	if changed, err := f.refresh(t.Context()); !changed || err != nil {
		t.Errorf("refresh of other rules: changed %v, error %v, want a change", changed, err)
	}

	f.Key = "other"
	if _, err := f.refresh(t.Context()); err == nil || !strings.Contains(err.Error(), `no key "other"`) {
		t.Errorf("refresh of a ConfigMap without the key: error %v, want one that names it", err)
	}
}
