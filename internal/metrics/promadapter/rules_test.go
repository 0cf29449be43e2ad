// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"crane.io/crane/internal/metrics/prometheus"
)

// config is a typical configuration of prometheus-adapter.
const sample = `
rules:
- seriesQuery: 'http_requests_total{kubernetes_namespace!="",kubernetes_pod_name!=""}'
  resources:
    overrides:
      kubernetes_namespace: {resource: namespace}
      kubernetes_pod_name: {resource: pod}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
- seriesQuery: '{__name__=~"^app_.*",container!="POD"}'
  seriesFilters: [{isNot: "_bucket$"}]
  resources: {template: "<<.Resource>>"}
  name: {matches: "^app_(.*)$"}
  metricsQuery: 'avg_over_time(<<.Series>>{<<.LabelMatchers>>}[5m])'
externalRules:
- seriesQuery: '{__name__="queue_depth",env="live"}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: 'clicks'
  resources: {namespaced: false}
  name: {as: "all_clicks"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
resourceRules:
  cpu:
    containerQuery: 'sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>,container!=""}[3m])) by (<<.GroupBy>>)'
    resources:
      overrides:
        instance: {resource: node}
        namespace: {resource: namespace}
        pod: {resource: pod}
    containerLabel: container
  window: 3m
`

func rulesOf(t *testing.T, text string, extra ...prometheus.Matcher) *Rules {
	t.Helper()

	r, err := Parse([]byte(text), extra)
	if err != nil {
		t.Fatal(err)
	}

	return r
}

func TestRulesGiveExpressions(t *testing.T) {
	r := rulesOf(t, sample, prometheus.Matcher{Label: "cluster", Op: "=", Value: `a"b`})
	pods := MetricQuery{Namespace: "shop", Matchers: prometheus.PodMatchers("shop", "StatefulSet", "db")}

	inDB := pods
	inDB.Container = "db"
	queue := MetricQuery{Namespace: "shop", Matchers: []prometheus.Matcher{{Label: "queue", Op: "=", Value: "orders"}}}
	for _, c := range []struct {
		name string
		ask  func() (string, bool, error)
		want string
	}{
		{
			"labels are renamed", func() (string, bool, error) { return r.CustomSum("http_requests_per_second", pods) },
			`sum(sum(rate(http_requests_total{kubernetes_namespace="shop",kubernetes_pod_name=~"(db)-[0-9]+",cluster="a\"b"}[2m])) by (kubernetes_pod_name))`,
		},
		{
			"the series follows from the name", func() (string, bool, error) { return r.CustomSum("busy", pods) },
			`sum(avg_over_time(app_busy{namespace="shop",pod=~"(db)-[0-9]+",cluster="a\"b"}[5m]))`,
		},
		{"what a filter leaves out", func() (string, bool, error) { return r.CustomSum("busy_bucket", pods) }, ""},
		{"no rule for the metric", func() (string, bool, error) { return r.ExternalSum("http_requests_total", pods) }, ""},
		{
			"external", func() (string, bool, error) { return r.ExternalSum("queue_depth", queue) },
			`sum(max(queue_depth{namespace="shop",queue="orders",cluster="a\"b"}) by ())`,
		},
		{
			"external of no namespace", func() (string, bool, error) { return r.ExternalSum("all_clicks", queue) },
			`sum(sum(clicks{queue="orders",cluster="a\"b"}))`,
		},
		{"external under the name of its series", func() (string, bool, error) { return r.ExternalSum("clicks", queue) }, ""},
		{
			"cpu", func() (string, bool, error) { return r.ResourceSum("cpu", inDB) },
			`sum(sum(rate(container_cpu_usage_seconds_total{namespace="shop",pod=~"(db)-[0-9]+",container="db",cluster="a\"b",container!=""}[3m])) by (pod,container))`,
		},
		{"memory has no rule", func() (string, bool, error) { return r.ResourceSum("memory", pods) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, found, err := c.ask()
			if err != nil || got != c.want || found != (c.want != "") {
				t.Fatalf("query = %s, %v, %v, want %s", got, found, err, c.want)
			}
			if !found {
				return
			}

			if _, err := parser.NewParser(parser.Options{}).ParseExpr(got); err != nil {
				t.Errorf("query %s does not parse: %v, want valid PromQL", got, err)
			}
		})
	}
}

// TestForecastsAreOfWhatIsServed checks that the query of a forecast is the total of the values that the adapter
// serves for the metric. It contains only the conditions of metricsQuery: those of seriesQuery select series, as the
// documentation of prometheus-adapter states (Discovery, Querying).
func TestForecastsAreOfWhatIsServed(t *testing.T) {
	r := rulesOf(t, sample, prometheus.Matcher{Label: "cluster", Op: "=", Value: "a"})
	listing, err := r.List(t.Context(), nil, func(_ context.Context, expr string) ([]string, error) {
		switch {
		case strings.Contains(expr, "(http_requests_total{"):
			return []string{"http_requests_total"}, nil
		case strings.Contains(expr, "(clicks{"):
			return []string{"clicks"}, nil
		case strings.Contains(expr, "queue_depth"):
			return []string{"queue_depth"}, nil
		}

		return []string{"app_busy"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}

	queue := []prometheus.Matcher{{Label: "queue", Op: "=", Value: "orders"}}
	for _, metric := range []string{"queue_depth", "all_clicks"} {
		forecast, there, err := r.ExternalSum(metric, MetricQuery{Namespace: "shop", Matchers: queue})
		served, too, failed := r.ExternalExpr(listing, metric, "shop", queue)
		if err != nil || failed != nil || !there || !too || forecast != "sum("+served+")" {
			t.Errorf("%s: ExternalSum = %s, ExternalExpr = %s (%v, %v), want the sum of the same query", metric, forecast, served, err, failed)
		}
	}

	pods := Objects{Resource: "pods", Namespace: "shop", Names: []string{"db-0", "db-1"}}
	for _, metric := range []string{"http_requests_per_second", "busy"} {
		forecast, there, err := r.CustomSum(metric, MetricQuery{Namespace: "shop", Matchers: []prometheus.Matcher{{Label: "pod", Op: "=~", Value: "db-0|db-1"}}})
		served, _, too, failed := r.CustomExpr(listing, metric, pods, nil)
		if err != nil || failed != nil || !there || !too || forecast != "sum("+served+")" {
			t.Errorf("%s: CustomSum = %s, CustomExpr = %s (%v, %v), want the sum of the same query", metric, forecast, served, err, failed)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string][2]string{
		"no YAML":           {"rules: [", "configuration"},
		"no series":         {"rules: [{metricsQuery: a}]", `rules[0]: seriesQuery ""`},
		"a broken series":   {"rules: [{seriesQuery: 'a{b}', metricsQuery: a}]", "seriesQuery"},
		"no query":          {"rules: [{seriesQuery: a}]", "rules[0]: the query is empty"},
		"a broken template": {"externalRules: [{seriesQuery: a, metricsQuery: '<<.Serie>>'}]", "externalRules[0]: query"},
		"a broken name":     {"rules: [{seriesQuery: a, name: {matches: '('}, metricsQuery: a}]", "name.matches"},
		"several groups":    {"rules: [{seriesQuery: a, name: {matches: '(a)(b)'}, metricsQuery: a}]", "name.as is needed"},
		"two filters":       {"rules: [{seriesQuery: a, seriesFilters: [{is: a, isNot: b}], metricsQuery: a}]", "seriesFilters[0]"},
		"a broken resource": {"resourceRules: {cpu: {containerQuery: '<<'}}", "resourceRules.cpu"},
	} {
		if _, err := Parse([]byte(c[0]), nil); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: Parse: error %v, want one with %q", name, err, c[1])
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample, "http_requests_per_second")
	f.Add("rules: [{seriesQuery: 'a{b=\"c\"}', metricsQuery: '<<.Series>>'}]", "a")
	f.Fuzz(func(_ *testing.T, text, metric string) {
		r, err := Parse([]byte(text), nil)
		if err != nil {
			return
		}

		q := MetricQuery{Namespace: "n", Matchers: prometheus.PodMatchers("n", "Deployment", "d")}
		_, _, _ = r.CustomSum(metric, q)
		_, _, _ = r.ExternalSum(metric, q)
		_, _, _ = r.ResourceSum("cpu", q)
	})
}
