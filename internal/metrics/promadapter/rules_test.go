// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"context"
	"errors"
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

// everySeries returns the listing of rules on a server that answers each query with the same series.
func everySeries(t *testing.T, r *Rules, series ...string) *Listing {
	t.Helper()

	listing, err := r.List(t.Context(), nil, func(context.Context, string) ([]string, error) { return series, nil })
	if err != nil {
		t.Fatal(err)
	}

	return listing
}

func TestRulesGiveExpressions(t *testing.T) {
	r := rulesOf(t, sample, prometheus.Matcher{Label: "cluster", Op: "=", Value: `a"b`})
	pods := MetricQuery{Namespace: "shop", Matchers: prometheus.PodMatchers("shop", "StatefulSet", "db")}

	inDB := pods
	inDB.Container = "db"
	queue := MetricQuery{Namespace: "shop", Matchers: []prometheus.Matcher{{Label: "queue", Op: "=", Value: "orders"}}}
	listing := everySeries(t, r, "http_requests_total", "app_busy", "app_busy_bucket", "queue_depth", "clicks")
	for _, c := range []struct {
		name string
		ask  func() (Total, bool, error)
		want string
	}{
		{
			"labels are renamed", func() (Total, bool, error) { return r.CustomSum(listing, "http_requests_per_second", pods) },
			`sum(sum(rate(http_requests_total{kubernetes_namespace="shop",kubernetes_pod_name=~"(db)-[0-9]+",cluster="a\"b"}[2m])) by (kubernetes_pod_name))`,
		},
		{
			"the series follows from the name", func() (Total, bool, error) { return r.CustomSum(listing, "busy", pods) },
			`sum(avg_over_time(app_busy{namespace="shop",pod=~"(db)-[0-9]+",cluster="a\"b"}[5m]))`,
		},
		{"what a filter leaves out", func() (Total, bool, error) { return r.CustomSum(listing, "busy_bucket", pods) }, ""},
		{"no rule for the metric", func() (Total, bool, error) { return r.ExternalSum(listing, "http_requests_total", pods) }, ""},
		{
			"external", func() (Total, bool, error) { return r.ExternalSum(listing, "queue_depth", queue) },
			`sum(max(queue_depth{namespace="shop",queue="orders",cluster="a\"b"}) by ())`,
		},
		{
			"external of no namespace", func() (Total, bool, error) { return r.ExternalSum(listing, "all_clicks", queue) },
			`sum(sum(clicks{queue="orders",cluster="a\"b"}))`,
		},
		{"external under the name of its series", func() (Total, bool, error) { return r.ExternalSum(listing, "clicks", queue) }, ""},
		{
			"cpu", func() (Total, bool, error) { return r.ResourceSum("cpu", inDB) },
			`sum(sum(rate(container_cpu_usage_seconds_total{namespace="shop",pod=~"(db)-[0-9]+",container="db",cluster="a\"b",container!=""}[3m])) by (pod,container))`,
		},
		{"memory has no rule", func() (Total, bool, error) { return r.ResourceSum("memory", pods) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			total, found, err := c.ask()
			got := total.Expr
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
		forecast, there, err := r.ExternalSum(listing, metric, MetricQuery{Namespace: "shop", Matchers: queue})
		served, too, failed := r.ExternalExpr(listing, metric, "shop", queue)
		if err != nil || failed != nil || !there || !too || forecast.Expr != "sum("+served+")" {
			t.Errorf("%s: ExternalSum = %s, ExternalExpr = %s (%v, %v), want the sum of the same query", metric, forecast.Expr, served, err, failed)
		}
	}

	pods := Objects{Resource: "pods", Namespace: "shop", Names: []string{"db-0", "db-1"}}
	for _, metric := range []string{"http_requests_per_second", "busy"} {
		forecast, there, err := r.CustomSum(listing, metric, MetricQuery{Namespace: "shop", Matchers: []prometheus.Matcher{{Label: "pod", Op: "=~", Value: "db-0|db-1"}}})
		served, _, too, failed := r.CustomExpr(listing, metric, pods, nil)
		if err != nil || failed != nil || !there || !too || forecast.Expr != "sum("+served+")" {
			t.Errorf("%s: CustomSum = %s, CustomExpr = %s (%v, %v), want the sum of the same query", metric, forecast.Expr, served, err, failed)
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
		rules, err := Parse([]byte(c[0]), nil)
		if err == nil {
			err = rules.Refused()
		}
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: Parse: error %v, want one with %q", name, err, c[1])
		}
	}
}

// TestParse_OneBadRule checks that a bad rule is named and takes no other one down.
func TestParse_OneBadRule(t *testing.T) {
	const good = `
- seriesQuery: 'good'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'`

	for name, bad := range map[string]string{
		"no PromQL":              "{seriesQuery: 'a{', metricsQuery: a}",
		"a misspelled field":     "{seriesQuery: a, metricQuery: a}",
		"a field's type":         "{seriesQuery: [a], metricsQuery: a}",
		"a broken template":      "{seriesQuery: a, metricsQuery: '<<.Nothing>>'}",
		"a broken name":          "{seriesQuery: a, metricsQuery: a, name: {matches: '('}}",
		"an empty filter":        "{seriesQuery: a, metricsQuery: a, seriesFilters: [{}]}",
		"every series":           "{seriesQuery: '{}', metricsQuery: a}",
		"a field twice":          "{seriesQuery: a, seriesQuery: b, metricsQuery: a}",
		"a nested field twice":   "{seriesQuery: a, metricsQuery: a, resources: {template: x, template: y}}",
		"a nested unknown field": "{seriesQuery: a, metricsQuery: a, resources: {template: x, namespace: true}}",
		"a field in capitals":    "{seriesQuery: a, metricsQuery: a, resources: {template: x}, Name: {as: b}}",
		"nothing":                "null",
		"a text":                 "seriesQuery",
		"a group of nothing":     "{seriesQuery: a, metricsQuery: '<<index .GroupBySlice 1>>', resources: {template: x}}",
		"an override of nothing": "{seriesQuery: a, metricsQuery: a, resources: {overrides: {pod: {}}}}",
		"a label of nothing":     "{seriesQuery: a, metricsQuery: a, resources: {template: '<<.Group>>'}}",
	} {
		for _, list := range []string{"rules", "externalRules"} {
			r := rulesOf(t, list+":"+good+"\n- "+bad+good)

			refused := new(InvalidRulesError)
			if !errors.As(r.Refused(), &refused) || len(refused.Names) != 1 || refused.Names[0] != list+"[1]" || refused.Counts[list] != 1 {
				t.Errorf("%s: Refused = %v, want %s[1] alone", name, r.Refused(), list)
				continue
			}

			listing := everySeries(t, r, "good")
			if !r.HasCustom(listing, "good") && !r.HasExternal(listing, "good") {
				t.Errorf("%s in %s: the rules beside it define nothing, want the metric good", name, list)
			}
		}
	}

	for _, text := range []string{
		"rule: []", "rules: {}", "rules: []\nrules: []", "rules: []\n---\nrules: []", "resourceRules: []", "resourceRules: {gpu: {}}",
		"resourceRules: {cpu: {containerquery: a, query: b}}", "resourceRules: {cpu: {containerQuery: a, containerQuery: b}}",
		"rules: [{seriesQuery: a, metricsQuery: a}]",
		"externalRules: [{seriesQuery: a, metricsQuery: 'sum(a) by (<<index .GroupBySlice 0>>)'}]",
	} {
		if r := rulesOf(t, text); r.Refused() == nil {
			t.Errorf("Refused of %q = nil, want an error", text)
		}
	}
}

// TestParse_YAML checks what YAML allows in a configuration: nothing at all, anchors, and names that YAML may take for numbers or booleans.
func TestParse_YAML(t *testing.T) {
	const rule = "{seriesQuery: a, resources: {overrides: {y: {resource: namespace}, no: {resource: pod}}}, name: {as: 5}, metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'}"

	for name, text := range map[string]string{
		"one rule":             "rules: [" + rule + "]",
		"a mark of its order":  "\ufeffrules: [" + rule + "]",
		"a mark of the end":    "---\nrules: [" + rule + "]\n...\n",
		"an anchor":            "rules: &list [" + rule + "]\nexternalRules: *list",
		"a merge":              "rules:\n- &rule " + rule + "\n- {<<: *rule, seriesQuery: b}",
		"line breaks of DOS":   "rules:\r\n- " + rule + "\r\n",
		"lists without a rule": "externalRules:\nresourceRules: ~\nrules: [" + rule + "]",
	} {
		r := rulesOf(t, text)
		if err := r.Refused(); err != nil {
			t.Errorf("%s: Refused = %v, want nil", name, err)
		}

		pod := Objects{Resource: "pod", Namespace: "shop", Names: []string{"p"}}
		if got, _, _, err := r.CustomExpr(everySeries(t, r, "a"), "5", pod, nil); got != `a{y="shop",no="p"}` || err != nil {
			t.Errorf("%s: CustomExpr = %s, %v, want the labels y and no", name, got, err)
		}
	}

	for _, text := range []string{"", "null", "---", "# nothing"} {
		if r := rulesOf(t, text); r.Refused() != nil || r.HasCustom(nil, "a") {
			t.Errorf("Refused of %q = %v, want neither rules nor an error", text, r.Refused())
		}
	}

	for _, text := range []string{"rules", "- rules", "rules: [", "rules: []\n---\n["} {
		if _, err := Parse([]byte(text), nil); err == nil {
			t.Errorf("Parse(%q): no error, want one", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample, "http_requests_per_second")
	f.Add("rules: [{seriesQuery: 'a{b=\"c\"}', metricsQuery: '<<.Series>>'}]", "a")
	f.Fuzz(func(t *testing.T, text, metric string) {
		r, err := Parse([]byte(text), nil)
		if err != nil {
			return
		}

		listing := everySeries(t, r, metric)
		q := MetricQuery{Namespace: "n", Matchers: prometheus.PodMatchers("n", "Deployment", "d")}
		_, _, _ = r.CustomSum(listing, metric, q)
		_, _, _ = r.ExternalSum(listing, metric, q)
		_, _, _ = r.ResourceSum("cpu", q)
	})
}
