// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"crane.io/crane/internal/metrics/promadapter"
)

// exampleRule is a rule in the style of the documentation of prometheus-adapter, with the series that Prometheus has for it.
type exampleRule struct {
	name, config string
	series       []string
	// metric, of an object or external, has the query want; refused are the rules that are left out.
	metric, selector string
	objects          promadapter.Objects
	external         bool
	want             string
	refused          []string
}

func examplePod(names ...string) promadapter.Objects {
	return promadapter.Objects{Resource: "pod", Namespace: "shop", Names: names}
}

// examples cover what the public documents of prometheus-adapter show: its configuration guide, its sample configuration, the walkthroughs, the
// page about external metrics, the questions of its README and the manifests.
func examples() []exampleRule {
	const byResource = "\n  resources: {template: \"<<.Resource>>\"}"
	const ofPods = "\n  resources: {overrides: {namespace: {resource: \"namespace\"}, pod: {resource: \"pod\"}}}"
	const rate = "\n  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>,container!=\"POD\"}[2m])) by (<<.GroupBy>>)'"

	return []exampleRule{
		{
			name:   "configuration guide: cumulative metrics of containers in seconds",
			config: "rules:\n- seriesQuery: '{__name__=~\"^container_.*\",container!=\"POD\",namespace!=\"\",pod!=\"\"}'" + ofPods + "\n  name: {matches: \"^container_(.*)_seconds_total$\"}" + rate,
			series: []string{"container_cpu_usage_seconds_total", "container_memory_rss"},
			metric: "cpu_usage", objects: examplePod("a", "b"),
			want: `sum(rate(container_cpu_usage_seconds_total{namespace="shop",pod=~"a|b",container!="POD"}[2m])) by (pod)`,
		},
		{
			name:   "configuration guide: a filter",
			config: "rules:\n- seriesQuery: '{__name__=~\"^container_.*_total\",container!=\"POD\",namespace!=\"\",pod!=\"\"}'\n  seriesFilters:\n  - isNot: \"^container_.*_seconds_total\"" + ofPods + "\n  name: {matches: \"^container_(.*)_total$\"}" + rate,
			series: []string{"container_cpu_usage_seconds_total", "container_fs_reads_total"},
			metric: "fs_reads", objects: examplePod("a"),
			want: `sum(rate(container_fs_reads_total{namespace="shop",pod="a",container!="POD"}[2m])) by (pod)`,
		},
		{
			name:   "configuration guide: labels with the group",
			config: "rules:\n- seriesQuery: 'hits'\n  resources: {template: \"kube_<<.Group>>_<<.Resource>>\"}\n  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'",
			series: []string{"hits"}, metric: "hits", objects: promadapter.Objects{Group: "networking.k8s.io", Resource: "ingress", Namespace: "shop", Names: []string{"web"}},
			want: `sum(hits{kube__namespace="shop",kube_networking_k8s_io_ingress="web"}) by (kube_networking_k8s_io_ingress)`,
		},
		{
			name:   "configuration guide: a label for a Deployment",
			config: "rules:\n- seriesQuery: 'hits'\n  resources: {overrides: {microservice: {group: \"apps\", resource: \"deployment\"}, namespace: {resource: namespace}}}\n  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'",
			series: []string{"hits"}, metric: "hits", objects: promadapter.Objects{Group: "apps", Resource: "deployment", Plural: "deployments", Namespace: "shop", Names: []string{"web"}},
			want: `sum(hits{namespace="shop",microservice="web"}) by (microservice)`,
		},
		{
			name:   "sample configuration: cumulative metrics of applications",
			config: "rules:\n- seriesQuery: '{namespace!=\"\",__name__!=\"^container_.*\"}'\n  name: {matches: \"^(.*)_total$\"}" + byResource + rate,
			series: []string{"requests_total", "inflight"}, metric: "requests", objects: examplePod("a"),
			want: `sum(rate(requests_total{namespace="shop",pod="a",container!="POD"}[2m])) by (pod)`,
		},
		{
			name:   "sample configuration: one metric with another name, of a resource of the cluster",
			config: "rules:\n- seriesQuery: 'cheddar{sharp=\"true\"}'\n  name: {as: \"cheesy_goodness\"}\n  resources: {overrides: {brand: {group: \"cheese.io\", resource: \"brand\"}}}\n  metricsQuery: 'count(cheddar{sharp=\"true\"})'",
			series: []string{"cheddar"}, metric: "cheesy_goodness", objects: promadapter.Objects{Group: "cheese.io", Resource: "brand", Names: []string{"x"}},
			want: `count(cheddar{sharp="true"})`,
		},
		{
			name:   "sample configuration: an external metric without a namespace",
			config: "externalRules:\n- seriesQuery: '{__name__=\"queue_depth\",topic!=\"\"}'\n  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (name)\n  resources:\n    namespaced: false",
			series: []string{"queue_depth"}, metric: "queue_depth", external: true, selector: "namespace=queue,name=my-sample-queue",
			want: `sum(queue_depth{name="my-sample-queue",namespace="queue"}) by (name)`,
		},
		{
			name:   "external metrics: of the namespace of the HPA",
			config: "externalRules:\n- seriesQuery: '{__name__=\"queue_consumer_lag\",name!=\"\"}'\n  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (name)\n  resources:\n    overrides: { namespace: {resource: \"namespace\"} }",
			series: []string{"queue_consumer_lag"}, metric: "queue_consumer_lag", external: true,
			want: `sum(queue_consumer_lag{namespace="shop"}) by (name)`,
		},
		{
			name:   "walkthrough: requests a second",
			config: "rules:\n- seriesQuery: 'http_requests_total{kubernetes_namespace!=\"\",kubernetes_pod_name!=\"\"}'\n  resources:\n    overrides:\n      kubernetes_namespace: {resource: \"namespace\"}\n      kubernetes_pod_name: {resource: \"pod\"}\n  name:\n    matches: \"^(.*)_total\"\n    as: \"${1}_per_second\"\n  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'",
			series: []string{"http_requests_total"}, metric: "http_requests_per_second", objects: examplePod("a"),
			want: `sum(rate(http_requests_total{kubernetes_namespace="shop",kubernetes_pod_name="a"}[2m])) by (kubernetes_pod_name)`,
		},
		{
			name:   "lag of a consumer by the labels that the HPA selects, except the namespace",
			config: "externalRules:\n- seriesQuery: '{topic!=\"\",__name__=~\"consumer_lag\"}'\n  resources:\n    template: <<.Resource>>\n  metricsQuery: sum(min_over_time(<<.Series>>{<< range $key, $value :=.LabelValuesByName >><< if ne $key \"namespace\" >><< $key >>=\"<< $value >>\",<<end >><< end >>}[1h])) by (topic)\n  name:\n    as: lag",
			series: []string{"consumer_lag"}, metric: "lag", external: true, selector: "topic=orders,group=billing",
			want: `sum(min_over_time(consumer_lag{group="billing",topic="orders",}[1h])) by (topic)`,
		},
		{
			name:   "a ratio of two metrics of a Service, with an empty new name of a pattern of one group",
			config: "rules:\n- seriesQuery: '{__name__=~\"^jvm_memory_bytes_(used|max)$\",area=\"heap\",kubernetes_name!=\"\"}'\n  seriesFilters:\n  - is: ^jvm_memory_bytes_(used|max)$\n  resources: {overrides: {kubernetes_namespace: {resource: namespace}, kubernetes_name: {resource: service}}}\n  name: {matches: \"^jvm_memory_bytes_(used|max)$\", as: on_heap_ratio}\n  metricsQuery: max(jvm_memory_bytes_used{<<.LabelMatchers>>}/jvm_memory_bytes_max{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
			series: []string{"jvm_memory_bytes_used", "jvm_memory_bytes_max"}, metric: "on_heap_ratio", objects: promadapter.Objects{Resource: "service", Namespace: "shop", Names: []string{"cache"}},
			want: `max(jvm_memory_bytes_used{kubernetes_namespace="shop",kubernetes_name="cache"}/jvm_memory_bytes_max{kubernetes_namespace="shop",kubernetes_name="cache"}) by (kubernetes_name)`,
		},
		{
			name:   "a join with the replicas of a Deployment that is named after the Service",
			config: "rules:\n- seriesQuery: kube_service_info{service=~\".*api.*\"}\n  resources: {overrides: {namespace: {resource: namespace}, service: {resource: service}}}\n  name: {as: requests_per_pod, matches: ^(.*)$}\n  metricsQuery: |\n    kube_service_info{<<.LabelMatchers>>} * on() group_right(service)\n      (sum(rate(requests{<<.LabelMatchers>>}[2m])) / on() kube_deployment_spec_replicas{deployment='<<index .LabelValuesByName \"service\">>-base',namespace='<<index .LabelValuesByName \"namespace\">>'})",
			series: []string{"kube_service_info"}, metric: "requests_per_pod", objects: promadapter.Objects{Resource: "service", Namespace: "shop", Names: []string{"api"}},
			want: "kube_service_info{namespace=\"shop\",service=\"api\"} * on() group_right(service)\n  (sum(rate(requests{namespace=\"shop\",service=\"api\"}[2m])) / on() kube_deployment_spec_replicas{deployment='api-base',namespace='shop'})",
		},
		{
			name:    "walkthrough: rules that are not finished",
			config:  "rules:\n- {}\n- seriesQuery: 'http_requests_total{kubernetes_namespace!=\"\"}'",
			refused: []string{"rules[0]", "rules[1]"},
		},
		{
			name:   "README: a ratio of two metrics",
			config: "rules:\n- seriesQuery: 'foo_total'\n  resources: {overrides: {system_name: {resource: \"node\"}}}\n  name:\n    matches: 'foo_total'\n    as: 'foo'\n  metricsQuery: 'sum(foo_total{<<.LabelMatchers>>}) by (<<.GroupBy>>) / sum(foo_count{<<.LabelMatchers>>}) by (<<.GroupBy>>)'",
			series: []string{"foo_total"}, metric: "foo", objects: promadapter.Objects{Resource: "node", Names: []string{"n"}},
			want: `sum(foo_total{system_name="n"}) by (system_name) / sum(foo_count{system_name="n"}) by (system_name)`,
		},
	}
}

// TestExamples checks that the public examples load, and answer as prometheus-adapter does.
func TestExamples(t *testing.T) {
	for _, c := range examples() {
		t.Run(c.name, func(t *testing.T) {
			rules, err := promadapter.Parse([]byte(c.config), nil)
			if err != nil {
				t.Fatal(err)
			}

			var names []string
			if refused := (*promadapter.InvalidRulesError)(nil); errors.As(rules.Refused(), &refused) {
				names = refused.Names
			}
			if strings.Join(names, " ") != strings.Join(c.refused, " ") {
				t.Errorf("Refused = %v, want %v", rules.Refused(), c.refused)
			}
			if c.want == "" {
				return
			}

			listing := listEvery(t, rules, c.series...)
			var got string
			if c.external {
				got, _, err = rules.ExternalExpr(listing, c.metric, "shop", matchersOf(t, c.selector))
			} else {
				got, _, _, err = rules.CustomExpr(listing, c.metric, c.objects, matchersOf(t, c.selector))
			}

			if got != c.want || err != nil {
				t.Errorf("query of %s = %s, %v, want %s", c.metric, got, err, c.want)
			}
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(got); err != nil {
				t.Errorf("query of %s = %s, want PromQL: %v", c.metric, got, err)
			}
		})
	}
}

// TestExampleOfResourceRules checks the manifest of prometheus-adapter for the metrics API of resources, whose queries forecasts use.
func TestExampleOfResourceRules(t *testing.T) {
	rules := mustParse(t, `
"resourceRules":
  "cpu":
    "containerLabel": "container"
    "containerQuery": |
      sum by (<<.GroupBy>>) (
        irate (
            container_cpu_usage_seconds_total{<<.LabelMatchers>>,container!="",pod!=""}[4m]
        )
      )
    "nodeQuery": |
      sum by (<<.GroupBy>>) (irate(node_cpu_usage_seconds_total{<<.LabelMatchers>>}[4m]))
    "resources": {"overrides": {"namespace": {"resource": "namespace"}, "node": {"resource": "node"}, "pod": {"resource": "pod"}}}
  "memory":
    "containerLabel": "container"
    "containerQuery": "sum by (<<.GroupBy>>) (container_memory_working_set_bytes{<<.LabelMatchers>>,container!=\"\",pod!=\"\"})"
    "nodeQuery": "sum by (<<.GroupBy>>) (node_memory_working_set_bytes{<<.LabelMatchers>>})"
    "resources": {"overrides": {"instance": {"resource": "node"}, "namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}}
  "window": "5m"
`)
	for name, want := range map[string]string{
		"cpu":    `container_cpu_usage_seconds_total{namespace="shop",container!="",pod!=""}[4m]`,
		"memory": `sum by (pod,container) (container_memory_working_set_bytes{namespace="shop",container!="",pod!=""})`,
	} {
		got, found, err := rules.ResourceSum(name, promadapter.MetricQuery{Namespace: "shop"})
		if !strings.Contains(got.Expr, want) || !found || err != nil {
			t.Errorf("ResourceSum(%s) = %s, %v, %v, want a query with %s", name, got.Expr, found, err, want)
		}
	}
}
