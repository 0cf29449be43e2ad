// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/apimachinery/pkg/labels"

	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
)

// defaultRules are rules as prometheus-adapter generates them by default, with the label prefix kube_ for metrics of applications.
const defaultRules = `
rules:
- seriesQuery: '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "^container_(.*)_seconds_total$"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>,container!="POD"}[1m])) by (<<.GroupBy>>)'
- seriesQuery: '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
  seriesFilters: [{isNot: "^container_.*_seconds_total$"}]
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "^container_(.*)_total$"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>,container!="POD"}[1m])) by (<<.GroupBy>>)'
- seriesQuery: '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
  seriesFilters: [{isNot: "^container_.*_total$"}]
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "^container_(.*)$"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>,container!="POD"}) by (<<.GroupBy>>)'
- seriesQuery: '{kube_namespace!="",__name__!~"^container_.*"}'
  seriesFilters: [{isNot: ".*_total$"}]
  resources: {template: "kube_<<.Resource>>"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: '{kube_namespace!="",__name__!~"^container_.*"}'
  seriesFilters: [{isNot: ".*_seconds_total"}]
  name: {matches: "^(.*)_total$"}
  resources: {template: "kube_<<.Resource>>"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)'
- seriesQuery: '{kube_namespace!="",__name__!~"^container_.*"}'
  name: {matches: "^(.*)_seconds_total$"}
  resources: {template: "kube_<<.Resource>>"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)'
`

// sortedMatchers sorts the matchers of the first selector, whose order has no meaning.
func sortedMatchers(query string) string {
	start := strings.Index(query, "{")
	end := strings.Index(query, "}")
	if start < 0 || end < start {
		return query
	}

	parts := strings.Split(query[start+1:end], ",")
	slices.Sort(parts)

	return query[:start+1] + strings.Join(parts, ",") + query[end:]
}

// answer is a server with some series for the queries about containers and others for all else.
func answer(containers, others []string) func(context.Context, string) ([]string, error) {
	return func(_ context.Context, expr string) ([]string, error) {
		if strings.Contains(expr, `=~"^container_`) {
			return containers, nil
		}

		return others, nil
	}
}

// TestDefaultRules checks the queries of prometheus-adapter's default rules for the objects of several resources.
func TestDefaultRules(t *testing.T) {
	rules := mustParse(t, defaultRules)
	listing, err := rules.List(t.Context(), nil, answer(
		[]string{"container_some_time_seconds_total", "container_some_count_total", "container_some_usage"},
		[]string{"node_gigawatts", "service_proxy_packets", "ingress_hits_total", "volume_claims_total", "work_queue_wait_seconds_total", "node_fan_seconds_total"},
	))
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		metric, group, resource, namespace, names, selector, want string
	}{
		{"some_usage", "", "pod", "shop", "a b", "", `sum(container_some_usage{namespace="shop",pod=~"a|b",container!="POD"}) by (pod)`},
		{"some_count", "", "pod", "shop", "a b", "", `sum(rate(container_some_count_total{namespace="shop",pod=~"a|b",container!="POD"}[1m])) by (pod)`},
		{"some_time", "", "pod", "shop", "a", "", `sum(rate(container_some_time_seconds_total{namespace="shop",pod="a",container!="POD"}[1m])) by (pod)`},
		{"ingress_hits", "", "service", "shop", "s", "", `sum(rate(ingress_hits_total{kube_namespace="shop",kube_service="s"}[1m])) by (kube_service)`},
		{"ingress_hits", "", "service", "shop", "s", "param1=value1", `sum(rate(ingress_hits_total{param1="value1",kube_namespace="shop",kube_service="s"}[1m])) by (kube_service)`},
		{"ingress_hits", "extensions", "ingress", "shop", "i", "", `sum(rate(ingress_hits_total{kube_namespace="shop",kube_ingress="i"}[1m])) by (kube_ingress)`},
		{"ingress_hits", "networking.k8s.io", "ingresses", "shop", "i", "", `sum(rate(ingress_hits_total{kube_namespace="shop",kube_ingress="i"}[1m])) by (kube_ingress)`},
		{"service_proxy_packets", "", "service", "shop", "s", "", `sum(service_proxy_packets{kube_namespace="shop",kube_service="s"}) by (kube_service)`},
		{"work_queue_wait", "apps", "deployment", "shop", "d", "", `sum(rate(work_queue_wait_seconds_total{kube_namespace="shop",kube_deployment="d"}[1m])) by (kube_deployment)`},
		{"node_gigawatts", "", "node", "", "n", "", `sum(node_gigawatts{kube_node="n"}) by (kube_node)`},
		{"volume_claims", "", "persistentvolume", "", "pv", "", `sum(rate(volume_claims_total{kube_persistentvolume="pv"}[1m])) by (kube_persistentvolume)`},
		{"node_fan", "", "node", "", "n", "", `sum(rate(node_fan_seconds_total{kube_node="n"}[1m])) by (kube_node)`},
	} {
		objects := promadapter.Objects{Group: c.group, Resource: c.resource, Namespace: c.namespace, Names: strings.Fields(c.names)}
		got, _, found, err := rules.CustomExpr(listing, c.metric, objects, matchersOf(t, c.selector))
		if sortedMatchers(got) != sortedMatchers(c.want) || !found || err != nil {
			t.Errorf("CustomExpr(%s of %s, selector %q) = %s, %v, %v, want %s", c.metric, c.resource, c.selector, got, found, err, c.want)
		}
	}
}

// TestForecastOfDefaultRules checks that a forecast reads the series that the adapter serves, and names the rule: with the default rules the
// name of a metric fits several.
func TestForecastOfDefaultRules(t *testing.T) {
	rules := mustParse(t, defaultRules)
	listing, err := rules.List(t.Context(), nil, answer([]string{"container_memory_rss"}, []string{"http_inflight", "queue_requests_total", "job_wait_seconds_total"}))
	if err != nil {
		t.Fatal(err)
	}

	for metric, want := range map[string]promadapter.Total{
		"memory_rss":     {Rule: "rules[2]", Series: "container_memory_rss"},
		"http_inflight":  {Rule: "rules[3]", Series: "http_inflight"},
		"queue_requests": {Rule: "rules[4]", Series: "queue_requests_total"},
		"job_wait":       {Rule: "rules[5]", Series: "job_wait_seconds_total"},
	} {
		served, _, found, err := rules.CustomExpr(listing, metric, promadapter.Objects{Resource: "pod", Namespace: "shop", Names: []string{"web-1"}}, nil)
		if err != nil || !found {
			t.Fatalf("CustomExpr(%s) = %v, %v, want a query", metric, found, err)
		}

		want.Expr = "sum(" + served + ")"
		pods := promadapter.MetricQuery{Namespace: "shop", Matchers: []prometheus.Matcher{{Label: "pod", Op: "=", Value: "web-1"}}}
		if got, _, err := rules.CustomSum(listing, metric, pods); got != want || err != nil {
			t.Errorf("CustomSum(%s) = %+v, %v, want %+v", metric, got, err, want)
		}
	}

	if _, found, err := rules.CustomSum(nil, "http_inflight", promadapter.MetricQuery{Namespace: "shop"}); !found || err == nil {
		t.Errorf("CustomSum without a listing = %v, %v, want ErrNotListed", found, err)
	}
}

// TestTemplates checks what prometheus-adapter's templates can use.
func TestTemplates(t *testing.T) {
	for name, c := range map[string]struct {
		template, namespace, selector string
		external, notNamespaced       bool
		names                         []string
		want, err                     string
	}{
		"a series":                   {template: `x <<.Series>>`, names: []string{"bar"}, want: "x foo"},
		"several names":              {template: `{<<.LabelMatchers>>}`, names: []string{"bar", "baz"}, want: `{pod=~"bar|baz"}`},
		"one name":                   {template: `{<<.LabelMatchers>>}`, names: []string{"bar"}, want: `{pod="bar"}`},
		"a selector":                 {template: `{<<.LabelMatchers>>}`, names: []string{"bar"}, selector: "m=v", want: `{m="v",pod="bar"}`},
		"values by name":             {template: `"<<index .LabelValuesByName "pod">>"`, names: []string{"bar", "baz"}, want: `"bar|baz"`},
		"the namespace by name":      {template: `{n="<<.LabelValuesByName.ns>>",p="<<.LabelValuesByName.pod>>"}`, namespace: "shop", names: []string{"bar"}, want: `{n="shop",p="bar"}`},
		"the labels of the group":    {template: `by (<<.GroupBy>>)`, names: []string{"bar"}, want: "by (pod)"},
		"the slice of labels":        {template: `<<.GroupBySlice>>`, names: []string{"bar"}, want: "[pod]"},
		"external":                   {template: `<<.Series>>{<<.LabelMatchers>>}`, external: true, selector: "a=b,c in (d,e)", want: `foo{a="b",c=~"d|e"}`},
		"external of a namespace":    {template: `{<<.LabelMatchers>>}`, external: true, namespace: "shop", selector: "a=b", want: `{ns="shop",a="b"}`},
		"external of all namespaces": {template: `{<<.LabelMatchers>>}`, external: true, notNamespaced: true, namespace: "shop", selector: "a=b", want: `{a="b"}`},
		"external without groups":    {template: `{n="<<.LabelValuesByName.ns>>"} <<.GroupBySlice>>`, external: true, namespace: "shop", want: `{n="shop"} []`},
		"a dot is a dot":             {template: `{<<.LabelMatchers>>}`, external: true, selector: "foo in (a.b,c)", want: `{foo=~"a\\.b|c"}`},
		"a label that is selected":   {template: `{<<if .LabelValuesByName.f>>f="<<.LabelValuesByName.f>>"<<end>>}`, external: true, selector: "f=x", want: `{f="x"}`},
		"a label that is not":        {template: `{<<if .LabelValuesByName.f>>f="<<.LabelValuesByName.f>>"<<end>>}`, external: true, want: `{}`},
		"a label that is needed":     {template: `{f="<<.LabelValuesByName.f>>"}`, external: true, err: "does not select"},
		"a value in a condition":     {template: `<<if eq .LabelValuesByName.f "x">>a<<else>>b<<end>>`, external: true, selector: "f=x", want: "a"},
		"a word in a branch":         {template: `<<if eq .LabelValuesByName.f "x">><<.LabelValuesByName.f>><<end>>`, external: true, selector: "f=x", err: "outside of a string"},
		"a word that is printed":     {template: `<<printf "%s{}" .LabelValuesByName.f>>`, external: true, selector: "f=secret", err: "outside of a string"},
		"a word as long as a number": {template: `vector(<<.LabelValuesByName.f>>)`, external: true, selector: "f=inf", err: "outside of a string"},
		"a namespace as a word":      {template: `vector(<<.LabelValuesByName.f>>)`, external: true, namespace: "up", selector: "f=up", err: "outside of a string"},
		"a quoted value":             {template: `{f=<<printf "%q" .LabelValuesByName.f>>}`, external: true, selector: "f=x", want: `{f="x"}`},
		// A selector of the request's namespace stays, one of another namespace finds nothing, and neither is dropped.
		"the own namespace":        {template: `{<<.LabelMatchers>>}`, external: true, namespace: "shop", selector: "ns=shop", want: `{ns="shop"}`},
		"another namespace":        {template: `{<<.LabelMatchers>>,v="<<.LabelValuesByName.ns>>"}`, external: true, namespace: "shop", selector: "ns=other", want: `{ns="shop",ns="other",v="shop"}`},
		"no namespace but another": {template: `{<<.LabelMatchers>>}`, external: true, namespace: "shop", selector: "ns!=shop", want: `{ns="shop",ns!="shop"}`},
		"the namespace of a queue": {template: `{<<.LabelMatchers>>}`, external: true, notNamespaced: true, namespace: "shop", selector: "ns=queue,name=q1", want: `{name="q1",ns="queue"}`},
		"a label called namespace": {template: `{<<.LabelMatchers>>}`, external: true, namespace: "shop", selector: "namespace=queue", want: `{ns="shop",namespace="queue"}`},
	} {
		list := "rules"
		if c.external {
			list = "externalRules"
		}

		namespaced := ""
		if c.notNamespaced {
			namespaced = ", namespaced: false"
		}

		rules := mustParse(t, list+":\n- seriesQuery: foo\n  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}"+namespaced+"}\n  metricsQuery: |-\n    "+c.template+"\n")
		listing := listEvery(t, rules, "foo")

		var got string
		var err error
		if c.external {
			got, _, err = rules.ExternalExpr(listing, "foo", c.namespace, matchersOf(t, c.selector))
		} else {
			got, _, _, err = rules.CustomExpr(listing, "foo", promadapter.Objects{Resource: "pod", Namespace: c.namespace, Names: c.names}, matchersOf(t, c.selector))
		}

		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) || c.err == "" && (err != nil || got != c.want) {
			t.Errorf("%s: query %s, error %v, want %s, error with %q", name, got, err, c.want, c.err)
		}
	}
}

// TestSeriesQueries checks that a seriesQuery may be whatever PromQL accepts, and that the listing asks for the same series.
func TestSeriesQueries(t *testing.T) {
	for name, c := range map[string]struct{ query, want string }{
		"a name":                    {"http_requests", `http_requests{}`},
		"a name and conditions":     {`http_requests{namespace!="",pod!=""}`, `http_requests{namespace!="",pod!=""}`},
		"a name in the conditions":  {`{__name__="http_requests",namespace!=""}`, `http_requests{namespace!=""}`},
		"line breaks":               {"{__name__=~\"^http_.*\",\n namespace!=\"\"}", `{__name__=~"^http_.*",namespace!=""}`},
		"single quotes":             {`{__name__=~'^http_.*',code=~'2..,3..'}`, `{__name__=~"^http_.*",code=~"2..,3.."}`},
		"backquotes":                {"{__name__=~`^http_.*`}", `{__name__=~"^http_.*"}`},
		"a comma at the end":        {`http_requests{namespace!="",}`, `http_requests{namespace!=""}`},
		"spaces":                    {` http_requests { namespace != "" } `, `http_requests{namespace!=""}`},
		"two conditions for a name": {`{__name__=~"^http_.*",__name__!~".*_bucket"}`, `{__name__=~"^http_.*",__name__!~".*_bucket"}`},
		"a name of UTF-8":           {`{"http.requests",namespace!=""}`, `{__name__="http.requests",namespace!=""}`},
		"a label of UTF-8":          {`{"http.requests","k8s.namespace"!=""}`, `{__name__="http.requests","k8s.namespace"!=""}`},
		"escapes":                   {`{__name__=~"^a\\.b$",c="\""}`, `{__name__=~"^a\\.b$",c="\""}`},
	} {
		var asked string
		rules := mustParse(t, "rules:\n- seriesQuery: "+quoteYAML(c.query)+"\n  resources: {template: \"<<.Resource>>\"}\n  metricsQuery: 'x'\n")
		_, err := rules.List(t.Context(), nil, func(_ context.Context, expr string) ([]string, error) {
			asked = expr
			return nil, nil
		})

		want := "count by (__name__) (" + c.want + ")"
		if asked != want || err != nil {
			t.Errorf("%s: List asks %s, %v, want %s", name, asked, err, want)
		}
		if _, err := parser.NewParser(parser.Options{}).ParseExpr(asked); err != nil {
			t.Errorf("%s: List asks %s, want PromQL: %v", name, asked, err)
		}
	}
}

// TestSeriesOfUTF8 checks that a series whose name is no bare name of PromQL is served where the rule quotes it, and refused where it does not.
func TestSeriesOfUTF8(t *testing.T) {
	for template, want := range map[string]string{
		`sum({"<<.Series>>",<<.LabelMatchers>>}) by (<<.GroupBy>>)`:   `sum({"http.requests",namespace="shop",pod="a"}) by (pod)`,
		`sum({"http.requests",<<.LabelMatchers>>}) by (<<.GroupBy>>)`: `sum({"http.requests",namespace="shop",pod="a"}) by (pod)`,
		`sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)`:      "",
	} {
		rules := mustParse(t, "rules:\n- seriesQuery: '{\"http.requests\"}'\n  resources: {template: \"<<.Resource>>\"}\n  name: {as: http_requests}\n  metricsQuery: '"+template+"'\n")
		listing := listEvery(t, rules, "http.requests", `http"requests`, "http`requests", `http\requests`, "http'requests", "http\nrequests")

		got, _, found, err := rules.CustomExpr(listing, "http_requests", promadapter.Objects{Resource: "pod", Namespace: "shop", Names: []string{"a"}}, nil)
		if got != want || !found || (err == nil) != (want != "") {
			t.Errorf("CustomExpr with %s = %s, %v, %v, want %q", template, got, found, err, want)
		}
	}
}

// TestLabelsOfUTF8 checks that a rule may name labels that PromQL allows in quotes alone, as OpenTelemetry does.
func TestLabelsOfUTF8(t *testing.T) {
	for _, resources := range []string{
		`{overrides: {k8s.namespace: {resource: namespace}, k8s.pod: {resource: pod}}}`, `{template: "k8s.<<.Resource>>"}`,
	} {
		rules := mustParse(t, `
rules:
- seriesQuery: '{"http.requests"}'
  resources: `+resources+`
  metricsQuery: 'sum({"<<.Series>>",<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: '{"http.errors"}'
  resources: `+resources+`
  metricsQuery: 'sum({"<<.Series>>",<<.LabelMatchers>>,p="<<index .LabelValuesByName "k8s.pod">>"}) by (<<range .GroupBySlice>><<.>><<end>>)'
`)
		listing := listEvery(t, rules, "http.requests", "http.errors")
		pod := promadapter.Objects{Resource: "pod", Namespace: "shop", Names: []string{"a"}}

		for metric, want := range map[string]string{
			"http.requests": `sum({"http.requests","k8s.namespace"="shop","k8s.pod"="a"}) by ("k8s.pod")`,
			"http.errors":   `sum({"http.errors","k8s.namespace"="shop","k8s.pod"="a",p="a"}) by ("k8s.pod")`,
		} {
			got, label, _, err := rules.CustomExpr(listing, metric, pod, nil)
			if got != want || label != "k8s.pod" || err != nil {
				t.Errorf("CustomExpr(%s) with %s = %s of the label %s, %v, want %s", metric, resources, got, label, err, want)
			}
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(got); err != nil {
				t.Errorf("CustomExpr(%s) = %s, want PromQL: %v", metric, got, err)
			}
		}
	}
}

// TestOverrides checks that an override may name its resource in the singular or the plural, and that its group counts.
func TestOverrides(t *testing.T) {
	rules := mustParse(t, `
rules:
- seriesQuery: 'http_requests'
  resources:
    overrides:
      namespace: {resource: namespaces}
      pod: {resource: Pods}
      ingress: {group: networking.k8s.io, resource: ingresses}
      policy: {resource: networkpolicy}
      microservice: {group: apps, resource: deployment}
      brand: {group: cheese.io, resource: brand}
    template: "x_<<.Group>>_<<.Resource>>"
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
`)
	listing := listEvery(t, rules, "http_requests")

	for _, c := range []struct{ group, resource, want string }{
		{"", "pods", "pod"},
		{"networking.k8s.io", "ingress", "ingress"},
		{"networking.k8s.io", "ingresses", "ingress"},
		{"extensions", "ingress", "x_extensions_ingress"},
		{"networking.k8s.io", "networkpolicies", "policy"},
		{"apps", "deployments", "microservice"},
		{"", "deployment", "x__deployment"},
		{"cheese.io", "brand", "brand"},
		{"cert-manager.io", "certificate", "x_cert_manager_io_certificate"},
	} {
		_, label, found, err := rules.CustomExpr(listing, "http_requests", promadapter.Objects{Group: c.group, Resource: c.resource, Namespace: "shop", Names: []string{"a"}}, nil)
		if label != c.want || !found || err != nil {
			t.Errorf("CustomExpr of %s.%s: label %s, %v, %v, want %s", c.resource, c.group, label, found, err, c.want)
		}
	}
}

// TestOverlappingRules checks that the last rule that finds series of a metric answers, as in prometheus-adapter.
func TestOverlappingRules(t *testing.T) {
	const rule = "\n- seriesQuery: 'foo'\n  metricsQuery: '%<<.Series>>'"

	rules := mustParse(t, "externalRules:"+strings.Replace(rule, "%", "1 * ", 1)+strings.Replace(rule, "%", "2 * ", 1))
	if got, _, err := rules.ExternalExpr(listEvery(t, rules, "foo"), "foo", "shop", nil); got != "2 * foo" || err != nil {
		t.Errorf("ExternalExpr = %s, %v, want that of the last rule", got, err)
	}
}

// TestScalars checks that an external metric may be a scalar, for the adapter and for a forecast.
func TestScalars(t *testing.T) {
	for query, want := range map[string]string{
		"scalar(sum(<<.Series>>{<<.LabelMatchers>>}))": "vector(scalar(sum(foo{})))",
		"42":                                   "vector(42)",
		"42 # a constant":                      "vector(42 # a constant\n)",
		"sum(<<.Series>>{<<.LabelMatchers>>})": "sum(foo{})",
		"rollup(<<.Series>>)":                  "rollup(foo)",
	} {
		rules := mustParse(t, "externalRules:\n- seriesQuery: foo\n  metricsQuery: '"+query+"'\n")
		listing := listEvery(t, rules, "foo")

		if got, _, err := rules.ExternalExpr(listing, "foo", "shop", nil); got != want || err != nil {
			t.Errorf("ExternalExpr of %s = %s, %v, want %s", query, got, err, want)
		}
		if got, _, err := rules.ExternalSum(listing, "foo", promadapter.MetricQuery{Namespace: "shop"}); got.Expr != "sum("+want+")" && got.Expr != "sum("+want+"\n)" || err != nil {
			t.Errorf("ExternalSum of %s = %s, %v, want the sum of %s", query, got.Expr, err, want)
		}
	}
}

// TestIneffectiveRules checks that each rule without metrics is named with the reason.
func TestIneffectiveRules(t *testing.T) {
	rules, err := promadapter.Parse([]byte(`
rules:
- {seriesQuery: used, resources: {template: "<<.Resource>>"}, metricsQuery: x}
- {seriesQuery: absent, resources: {template: "<<.Resource>>"}, metricsQuery: x}
- {}
externalRules:
- {seriesQuery: '{__name__=~"used|other"}', seriesFilters: [{is: "^never$"}], metricsQuery: x}
`), nil)
	if err != nil {
		t.Fatal(err)
	}

	listing, err := rules.List(t.Context(), nil, func(_ context.Context, expr string) ([]string, error) {
		if strings.Contains(expr, "used") {
			return []string{"used"}, nil
		}

		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}

	want := []promadapter.IneffectiveRule{
		{Rule: "rules[2]", Reason: promadapter.ReasonRefused},
		{Rule: "rules[1]", Reason: promadapter.ReasonNoSeries},
		{Rule: "externalRules[0]", Reason: promadapter.ReasonNoMatch},
	}
	if got := rules.Ineffective(listing); !slices.Equal(got, want) {
		t.Errorf("Ineffective = %v, want %v", got, want)
	}
}

// TestList_RefusedSeriesQuery checks that a rule that the server refuses to list is named and keeps no metric from the other rules, while one
// whose server is away may define its metrics.
func TestList_RefusedSeriesQuery(t *testing.T) {
	const text = `
externalRules:
- {seriesQuery: used, metricsQuery: "<<.Series>>"}
- {seriesQuery: '{__name__=~".*"}', metricsQuery: "all"}
- {seriesQuery: '{__name__=~"a.*"}', name: {as: total}, metricsQuery: "total"}`

	for name, c := range map[string]struct {
		names   []string
		failure error
		want    string
		err     error
		reason  []promadapter.IneffectiveRule
	}{
		"refused":        {nil, &prometheus.Error{Kind: prometheus.Refused}, "used", nil, []promadapter.IneffectiveRule{{Rule: "externalRules[1]", Reason: promadapter.ReasonNotListed}}},
		"too many names": {make([]string, 10_001), nil, "used", nil, []promadapter.IneffectiveRule{{Rule: "externalRules[1]", Reason: promadapter.ReasonNotListed}}},
		"unreachable":    {nil, &prometheus.Error{Kind: prometheus.Unreachable}, "", promadapter.ErrNotListed, nil},
		"overloaded":     {nil, &prometheus.Error{Kind: prometheus.Overloaded}, "", promadapter.ErrNotListed, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rules := mustParse(t, text)
			var listing *promadapter.Listing
			for range 2 {
				var err error
				listing, err = rules.List(t.Context(), listing, func(_ context.Context, expr string) ([]string, error) {
					switch {
					case strings.Contains(expr, `".*"`):
						return c.names, c.failure
					case strings.Contains(expr, "used"):
						return []string{"used"}, nil
					}

					return []string{"ab"}, nil
				})
				if err == nil || !strings.Contains(err.Error(), "externalRules[1]") {
					t.Errorf("List: error %v, want one that names externalRules[1]", err)
				}
			}

			if got, _, err := rules.ExternalExpr(listing, "used", "shop", nil); got != c.want || !errors.Is(err, c.err) {
				t.Errorf("ExternalExpr(used) = %s, %v, want %q, %v", got, err, c.want, c.err)
			}
			if got := rules.Ineffective(listing); !slices.Equal(got, c.reason) {
				t.Errorf("Ineffective = %v, want %v", got, c.reason)
			}
		})
	}

	// A rule that gives all its series one name may define it before they are listed.
	if rules := mustParse(t, `
externalRules:
- {seriesQuery: used, metricsQuery: "<<.Series>>"}
- {seriesQuery: '{__name__=~"a.*"}', name: {as: total}, metricsQuery: "total"}`); !rules.HasExternal(nil, "total") || rules.HasExternal(nil, "ab") {
		t.Error("HasExternal without a listing: want true for total, which the rule names its series, and false for ab")
	}
}

// TestListSince checks that series without a present value are listed while they have a sample of that age.
func TestListSince(t *testing.T) {
	rules := mustParse(t, "externalRules: [{seriesQuery: 'pushed{job=\"batch\"}', metricsQuery: x}]")

	var asked string
	_, err := rules.ListSince(t.Context(), 90*time.Minute, nil, func(_ context.Context, expr string) ([]string, error) {
		asked = expr
		return []string{"pushed"}, nil
	})
	if want := `count by (__name__) (last_over_time(pushed{job="batch"}[5400000ms]))`; asked != want || err != nil {
		t.Errorf("ListSince asks %s, %v, want %s", asked, err, want)
	}
	if _, err := parser.NewParser(parser.Options{}).ParseExpr(asked); err != nil {
		t.Errorf("ListSince asks %s, want PromQL: %v", asked, err)
	}
}

func mustParse(t *testing.T, text string) *promadapter.Rules {
	t.Helper()

	rules, err := promadapter.Parse([]byte(text), nil)
	if err == nil {
		err = rules.Refused()
	}
	if err != nil {
		t.Fatalf("Parse of %s: %v", text, err)
	}

	return rules
}

// listEvery returns the listing of rules on a server that answers each query with the same series.
func listEvery(t *testing.T, rules *promadapter.Rules, series ...string) *promadapter.Listing {
	t.Helper()

	listing, err := rules.List(t.Context(), nil, func(context.Context, string) ([]string, error) { return series, nil })
	if err != nil {
		t.Fatal(err)
	}

	return listing
}

func matchersOf(t *testing.T, selector string) []prometheus.Matcher {
	t.Helper()

	parsed, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}

	matchers, err := promadapter.SelectorMatchers(parsed)
	if err != nil {
		t.Fatal(err)
	}

	return matchers
}

func quoteYAML(text string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(text, "'", "''"), "\n", "\n\n   ") + "'"
}
