// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
)

// served is a typical configuration of prometheus-adapter.
const served = `
rules:
- seriesQuery: 'lonely'
  resources: {overrides: {pod: {resource: pods}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
  seriesFilters: [{isNot: "_total$"}]
  resources:
    overrides: {namespace: {resource: namespace}, pod: {resource: pod}}
  name: {matches: "^container_(.*)$"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>,container!="POD"}) by (<<.GroupBy>>)'
- seriesQuery: 'requests_total{job="web"}'
  resources: {template: "kube_<<.Group>>_<<.Resource>>"}
  name: {as: "requests"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<range $i, $l := .GroupBySlice>><<$l>><<end>>)'
externalRules:
- seriesQuery: '{__name__=~"^queue_.*"}'
  resources: {namespaced: false}
  name: {matches: "^queue_(len|age)_(.*)$", as: "queue_${1}_of_${2}"}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: 'jobs_pending'
  resources: {overrides: {ns: {resource: namespace}}}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) * scalar(<<index .LabelValuesByName "factor">>)'
`

func parse(t *testing.T) *promadapter.Rules {
	t.Helper()

	extra, err := prometheus.ParseMatchers("cluster=eu")
	if err != nil {
		t.Fatal(err)
	}

	rules, err := promadapter.Parse([]byte(served), extra)
	if err != nil {
		t.Fatal(err)
	}

	return rules
}

// list returns the listing of rules on a server with the given series.
func list(t *testing.T, rules *promadapter.Rules, series ...string) *promadapter.Listing {
	t.Helper()

	listing, err := rules.List(t.Context(), nil, func(_ context.Context, expr string) ([]string, error) {
		return slices.DeleteFunc(slices.Clone(series), func(name string) bool {
			return !strings.Contains(expr, "("+name+"{") && !strings.Contains(expr, "({__name__=~")
		}), nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return listing
}

func TestServeCustom(t *testing.T) {
	rules := parse(t)
	listing := list(t, rules, "container_memory_rss", "container_cpu_total", "requests_total", "lonely")
	for name, c := range map[string]struct {
		metric      string
		of          promadapter.Objects
		expr, label string
		found       bool
		err         string
	}{
		"one pod, and a name that follows": {
			metric: "memory_rss", of: promadapter.Objects{Resource: "pod", Namespace: "shop", Names: []string{"web-0"}},
			expr: `sum(container_memory_rss{namespace="shop",pod="web-0",cluster="eu",container!="POD"}) by (pod)`, label: "pod", found: true,
		},
		"pods, and a dot that is a dot": {
			metric: "memory_rss", of: promadapter.Objects{Resource: "pod", Namespace: "shop", Names: []string{"a.b", "c"}},
			expr: `sum(container_memory_rss{namespace="shop",pod=~"a\\.b|c",cluster="eu",container!="POD"}) by (pod)`, label: "pod", found: true,
		},
		"a namespace": {
			metric: "memory_rss", of: promadapter.Objects{Resource: "namespace", Names: []string{"shop"}},
			expr: `sum(container_memory_rss{namespace="shop",cluster="eu",container!="POD"}) by (namespace)`, label: "namespace", found: true,
		},
		"a filter": {metric: "cpu_total", of: promadapter.Objects{Resource: "pod", Namespace: "shop", Names: []string{"web-0"}}},
		"a template with a group": {
			metric: "requests", of: promadapter.Objects{Group: "apps.k8s.io", Resource: "deployment", Namespace: "shop", Names: []string{"web"}},
			expr:  `sum(rate(requests_total{kube__namespace="shop",kube_apps_k8s_io_deployment="web",cluster="eu"}[5m])) by (kube_apps_k8s_io_deployment)`,
			label: "kube_apps_k8s_io_deployment", found: true,
		},
		"a resource that the rule has no label for": {metric: "lonely", of: promadapter.Objects{Resource: "node", Names: []string{"n"}}},
		"namespaces that would be mixed": {
			metric: "lonely", of: promadapter.Objects{Resource: "pod", Namespace: "shop", Names: []string{"p"}}, found: true, err: "no label for namespaces",
		},
		"a metric without a rule": {metric: "unknown", of: promadapter.Objects{Resource: "node", Names: []string{"n"}}},
	} {
		t.Run(name, func(t *testing.T) {
			expr, label, found, err := rules.CustomExpr(listing, c.metric, c.of, nil)
			if expr != c.expr || label != c.label || found != c.found || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("CustomExpr(%s) = %s, %q, %v, %v, want %s, %q, %v, error with %q", c.metric, expr, label, found, err, c.expr, c.label, c.found, c.err)
			}
		})
	}
}

// TestList checks that names that cannot be derived from a metric are found in the series of the server. A rule whose
// query fails keeps its entry, and the error names it.
func TestList(t *testing.T) {
	rules := parse(t)
	if rules.HasExternal(nil, "queue_len_of_mail") {
		t.Error("HasExternal of a name with two groups without a listing: true, want false: the name cannot be reversed")
	}

	var asked []string
	server := func(_ context.Context, expr string) ([]string, error) {
		asked = append(asked, expr)
		if strings.Contains(expr, "queue_") {
			return []string{"queue_len_mail", "queue_age_mail", "queue_other"}, nil
		}

		return nil, nil
	}

	first, err := rules.List(t.Context(), nil, server)
	if err != nil {
		t.Fatal(err)
	}

	if !slices.Contains(asked, `count by (__name__) ({__name__=~"^queue_.*",cluster="eu"})`) || !slices.Contains(asked, `count by (__name__) (requests_total{job="web",cluster="eu"})`) {
		t.Errorf("List asked %q, want the counts of queue_ and of requests_total", asked)
	}

	down := errors.New("down")
	second, err := rules.List(t.Context(), first, func(_ context.Context, expr string) ([]string, error) {
		if strings.Contains(expr, "jobs_pending") {
			return []string{"jobs_pending"}, nil
		}

		return nil, down
	})

	if !errors.Is(err, down) || !strings.Contains(err.Error(), "externalRules[0]") || strings.Contains(err.Error(), "externalRules[1]") {
		t.Errorf("List with a query that fails: error %v, want one that names externalRules[0] alone", err)
	}

	for _, listing := range []*promadapter.Listing{first, second} {
		expr, found, err := rules.ExternalExpr(listing, "queue_len_of_mail", "shop", nil)
		if expr != `queue_len_mail{cluster="eu"}` || !found || err != nil {
			t.Errorf("ExternalExpr(queue_len_of_mail) = %s, %v, %v, want queue_len_mail of cluster eu", expr, found, err)
		}
	}

	if rules.HasCustom(first, "memory_rss") || !rules.HasCustom(nil, "memory_rss") {
		t.Error("HasCustom(memory_rss): want false with a listing that lacks it, and true without a listing")
	}

	want := []promadapter.ListedMetric{{Metric: "jobs_pending", Resources: []schema.GroupResource{{Resource: "namespace"}}}, {Metric: "queue_age_of_mail"}, {Metric: "queue_len_of_mail"}}
	if diff := cmp.Diff(want, second.External(rules)); diff != "" {
		t.Errorf("External: metrics differ (-want +got):\n%s", diff)
	}

	_, err = rules.List(t.Context(), nil, func(context.Context, string) ([]string, error) { return make([]string, 10_001), nil })
	if err == nil || !strings.Contains(err.Error(), "10001 series names") {
		t.Errorf("List of too many names: error %v, want one with 10001 series names", err)
	}
}

func TestServeExternal(t *testing.T) {
	rules := parse(t)
	listing := list(t, rules, "jobs_pending")
	factor := []prometheus.Matcher{{Label: "factor", Op: "=", Value: "2"}}

	expr, found, err := rules.ExternalExpr(listing, "jobs_pending", "shop", factor)
	if want := `max(jobs_pending{ns="shop",factor="2",cluster="eu"}) by () * scalar(2)`; expr != want || !found || err != nil {
		t.Errorf("ExternalExpr(jobs_pending) = %s, %v, %v, want %s", expr, found, err, want)
	}
	// A template with an unknown field fails and returns no partial query.
	if expr, found, err := rules.ExternalExpr(listing, "jobs_pending", "shop", nil); !found || err != nil && expr != "" {
		t.Errorf("ExternalExpr without the factor = %q, %v, %v, want it found, and no query beside an error", expr, found, err)
	}
}

// TestHostileNames verifies that neither the name of a metric, nor of an object, nor of a series on the server can change a query: users
// choose the first two, scraped targets the third.
func TestHostileNames(t *testing.T) {
	rules, err := promadapter.Parse([]byte(`
rules:
- seriesQuery: '{__name__=~".*"}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>,owner="<<index .LabelValuesByName "pod">>"})'
externalRules:
- seriesQuery: '{__name__=~".*"}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) * scalar(<<index .LabelValuesByName "factor">>)'
`), nil)
	if err != nil {
		t.Fatal(err)
	}

	const hostile = `secret{namespace="victim"} or x`
	listing := list(t, rules, "up", hostile)
	pod := func(name string) promadapter.Objects {
		return promadapter.Objects{Resource: "pod", Namespace: "shop", Names: []string{name}}
	}

	if expr, found, err := rules.ExternalExpr(listing, hostile, "shop", nil); found || err != nil {
		t.Errorf("ExternalExpr of a hostile metric = %s, %v, want not found", expr, err)
	}
	if expr, _, found, err := rules.CustomExpr(listing, hostile, pod("web-0"), nil); found || err != nil {
		t.Errorf("CustomExpr of a hostile metric = %s, %v, want not found", expr, err)
	}

	for _, before := range []*promadapter.Listing{nil, listing} {
		if expr, _, err := rules.ExternalExpr(before, hostile+" ", "shop", nil); expr != "" {
			t.Errorf("ExternalExpr of a metric that is not listed = %s, %v, want no query", expr, err)
		}
	}

	if _, found, err := rules.ExternalExpr(nil, "up", "shop", nil); !found || !errors.Is(err, promadapter.ErrNotListed) {
		t.Errorf("ExternalExpr before the first listing: found %v, error %v, want true and ErrNotListed", found, err)
	}
	if total, found, err := rules.ExternalSum(listing, hostile, promadapter.MetricQuery{Namespace: "shop"}); found || err != nil {
		t.Errorf("ExternalSum of a hostile metric = %s, %v, want not found", total.Expr, err)
	}

	for _, name := range []string{`x"} or secret{a="`, "x\\", "a b", "a,b", "a`b", "a'b", "a\nb"} {
		if expr, _, found, err := rules.CustomExpr(listing, "up", pod(name), nil); !found || err == nil {
			t.Errorf("CustomExpr of object %q = %s, want an error", name, expr)
		}

		two := pod(name)
		two.Names = append(two.Names, "web-0")

		if name == "x\\" {
			continue // Quoted in the pattern.
		}

		if expr, _, found, err := rules.CustomExpr(listing, "up", two, nil); name != "a,b" && (!found || err == nil) {
			t.Errorf("CustomExpr of objects %q = %s, want an error", two.Names, expr)
		}

		factor := []prometheus.Matcher{{Label: "factor", Op: "=", Value: name}}
		if expr, found, err := rules.ExternalExpr(listing, "up", "shop", factor); !found || err == nil {
			t.Errorf("ExternalExpr with factor %q = %s, want an error", name, expr)
		}
	}

	if expr, _, found, err := rules.CustomExpr(listing, "up", pod("web-0.a:b"), nil); !found || err != nil {
		t.Errorf("CustomExpr of a valid name = %s, %v, want it found without an error", expr, err)
	}
}

// TestHostileNamesKeepTheNamespace verifies that no matcher and no object of a request replaces its namespace, wherever a template uses it,
// and that no value becomes a selector of all namespaces.
func TestHostileNamesKeepTheNamespace(t *testing.T) {
	for _, extra := range []string{"cluster=eu", "ns=system"} {
		t.Run(extra, func(t *testing.T) { testNamespaceKept(t, extra) })
	}
}

func testNamespaceKept(t *testing.T, configured string) {
	extra, err := prometheus.ParseMatchers(configured)
	if err != nil {
		t.Fatal(err)
	}

	rules, err := promadapter.Parse([]byte(`
rules:
- seriesQuery: 'up'
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{ns="<<index .LabelValuesByName "ns">>",pod=~"<<index .LabelValuesByName "pod">>"})'
externalRules:
- seriesQuery: 'up'
  resources: {overrides: {ns: {resource: namespace}}}
  metricsQuery: '<<.Series>>{ns="<<index .LabelValuesByName "ns">>"}'
- seriesQuery: 'factor'
  resources: {overrides: {ns: {resource: namespace}}}
  metricsQuery: |
    <<.Series>>{ns="shop"} * scalar(<<index .LabelValuesByName "factor">>) # isn't "<<index .LabelValuesByName "comment">>
- seriesQuery: 'quoted'
  resources: {overrides: {ns: {resource: namespace}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>} and x{ns="shop",a="\"<<index .LabelValuesByName "a">>\"",b=`+"`\\<<index .LabelValuesByName \"b\">>`"+`}'
`), extra)
	if err != nil {
		t.Fatal(err)
	}

	listing := list(t, rules, "up", "factor", "quoted")
	equal := func(label, value string) prometheus.Matcher {
		return prometheus.Matcher{Label: label, Op: "=", Value: value}
	}

	victims := []prometheus.Matcher{equal("ns", "victim"), equal("namespace", "victim")}
	pods := promadapter.Objects{Resource: "pod", Namespace: "shop", Names: []string{"web-0"}}
	if expr, _, _, err := rules.CustomExpr(listing, "up", pods, victims); err != nil || expr != `sum(up{ns="shop",pod=~"web-0"})` {
		t.Errorf("CustomExpr with labels of another namespace = %s, %v, want pods of shop alone", expr, err)
	}
	if expr, _, err := rules.ExternalExpr(listing, "up", "shop", victims); err != nil || expr != `up{ns="shop"}` {
		t.Errorf("ExternalExpr with labels of another namespace = %s, %v, want series of shop alone", expr, err)
	}

	query := promadapter.MetricQuery{Namespace: "shop", Matchers: victims}
	if total, _, err := rules.CustomSum(listing, "up", query); err != nil || !strings.Contains(total.Expr, `ns="shop"`) {
		t.Errorf("CustomSum with labels of another namespace = %s, %v, want series of shop", total.Expr, err)
	}
	if total, _, err := rules.ExternalSum(listing, "up", query); err != nil || total.Expr != `sum(up{ns="shop"})` {
		t.Errorf("ExternalSum with labels of another namespace = %s, %v, want series of shop alone", total.Expr, err)
	}

	for _, names := range [][]string{{"victim"}, {"shop", "victim"}, nil} {
		if expr, _, found, err := rules.CustomExpr(listing, "up", promadapter.Objects{Resource: "namespaces", Namespace: "shop", Names: names}, nil); !found || err == nil {
			t.Errorf("CustomExpr of namespaces %v = %s, want an error", names, expr)
		}
	}

	own := promadapter.Objects{Resource: "namespaces", Namespace: "shop", Names: []string{"shop"}}
	if expr, label, _, err := rules.CustomExpr(listing, "up", own, nil); err != nil || label != "ns" || expr != `sum(up{ns="shop",pod=~""})` {
		t.Errorf("CustomExpr of the own namespace = %s, label %q, %v, want series of shop by ns", expr, label, err)
	}

	for value, want := range map[string]bool{
		"2": true, "-0.5": true, "1e-3": true, "5m": true, "1h30m": true,
		"secret": false, "infinity": false, "ns:secret:rate": false, "a-b": false, "1-secret": false, "2e": false, "": false, "m5": false,
	} {
		expr, _, err := rules.ExternalExpr(listing, "factor", "shop", []prometheus.Matcher{equal("factor", value)})
		if (err == nil) != want {
			t.Errorf("ExternalExpr with unquoted factor %q = %s, %v, want it accepted: %v", value, expr, err, want)
		}
	}

	words := []prometheus.Matcher{equal("a", "secret"), equal("b", "secret")}
	if expr, _, err := rules.ExternalExpr(listing, "quoted", "shop", words); err != nil {
		t.Errorf("ExternalExpr with quoted words = %s, %v, want no error", expr, err)
	}

	comment := []prometheus.Matcher{equal("factor", "2"), equal("comment", "secret")}
	if expr, _, err := rules.ExternalExpr(listing, "factor", "shop", comment); err != nil {
		t.Errorf("ExternalExpr with a word in a comment = %s, %v, want no error", expr, err)
	}
}

func TestMatchers(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "[]",
		"a=b":                      `[a="b"]`,
		"a in (x.y,z)":             `[a=~"x\\.y|z"]`,
		"a notin (x,y)":            `[a!~"x|y"]`,
		"a!=b,c":                   `[a!="b" c!=""]`,
		"!a":                       `[a=""]`,
		"a>1":                      "operator gt",
		"app.kubernetes.io/name=x": "label name has letters",
	} {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}

		matchers, err := promadapter.SelectorMatchers(selector)
		if got := fmt.Sprint(matchers); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("SelectorMatchers(%q) = %s, %v, want %s", text, got, err, want)
		}
	}

	if _, err := promadapter.SelectorMatchers(labels.Nothing()); err == nil {
		t.Error("SelectorMatchers of a selector of nothing: no error, want one")
	}
}

// FuzzServe checks that no configuration causes a panic, and that queries contain the namespace if the rule has a
// label for it.
func FuzzServe(f *testing.F) {
	f.Add(served, "queue_len_of_mail", "web-0")
	f.Add("rules: [{seriesQuery: 'a', metricsQuery: '<<.Series>>'}]", "a", "\"}")
	f.Add("externalRules: [{seriesQuery: '{__name__=~\"a|b\"}', name: {matches: '(.)(.)', as: '$2$1'}, metricsQuery: 'x'}]", "ab", "")

	f.Fuzz(func(t *testing.T, text, metric, object string) {
		rules, err := promadapter.Parse([]byte(text), nil)
		if err != nil {
			return
		}

		listing, err := rules.List(t.Context(), nil, func(context.Context, string) ([]string, error) { return []string{metric, object, "a"}, nil })
		if err != nil {
			t.Fatal(err)
		}

		_, _, _ = rules.ExternalExpr(listing, metric, "shop", nil)
		_, label, found, err := rules.CustomExpr(listing, metric, promadapter.Objects{Resource: "pods", Namespace: "shop", Names: []string{object}}, nil)
		if found && err == nil && label == "" {
			t.Errorf("CustomExpr(%q, %q) has no label, want one that distinguishes the objects", metric, object)
		}
	})
}
