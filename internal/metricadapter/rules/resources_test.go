// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/promadapter"
)

// newProvider returns a provider of rules on a server that has one series, and the queries that it evaluates. Each has one value, with the
// labels of the answer.
func newProvider(t *testing.T, config string, answer metrics.Labels) (*Provider, *[]string) {
	t.Helper()

	rules, err := promadapter.Parse([]byte(config), nil)
	if err != nil {
		t.Fatal(err)
	}

	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{
		{Version: "v1"}, {Group: "networking.k8s.io", Version: "v1"}, {Group: "search.example", Version: "v1"}, {Group: "extensions", Version: "v1beta1"},
	})
	core := schema.GroupVersion{Version: "v1"}
	mapper.Add(core.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(core.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: "Ingress"}, meta.RESTScopeNamespace)

	// The plural of a custom resource is what its author chose.
	search := schema.GroupVersion{Group: "search.example", Version: "v1"}
	mapper.AddSpecific(search.WithKind("Index"), search.WithResource("indices"), search.WithResource("index"), meta.RESTScopeNamespace)

	resources := &Resources{}
	resources.current.Store(&discovered{mapper: meta.PriorityRESTMapper{
		Delegate:         mapper,
		ResourcePriority: []schema.GroupVersionResource{{Group: "networking.k8s.io", Version: meta.AnyVersion, Resource: meta.AnyResource}},
	}})

	var queries []string
	p := New(Config{
		Resources: resources, Rules: func() *promadapter.Rules { return rules }, Clock: clock.RealClock{},
		Query: func(_ context.Context, expr string, _ time.Time) ([]metrics.Sample, error) {
			queries = append(queries, expr)
			labels := metrics.Labels{"__name__": "hits"}
			maps.Copy(labels, answer)

			return []metrics.Sample{{Labels: labels, Value: 7}}, nil
		},
	})
	if err := p.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}

	return p, &queries
}

// TestResourcesOfOverrides checks that an override names its resource as the REST mapper of the cluster knows it: in the singular or plural, of
// the group that it has, or of the preferred one.
func TestResourcesOfOverrides(t *testing.T) {
	for _, c := range []struct {
		override string
		resource schema.GroupResource
		want     bool
	}{
		{"{resource: ingress}", schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}, true},
		{"{resource: ingresses}", schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}, true},
		{"{group: networking.k8s.io, resource: ingress}", schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}, true},
		{"{group: extensions, resource: ingress}", schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}, false},
		{"{group: extensions, resource: ingress}", schema.GroupResource{Group: "extensions", Resource: "ingresses"}, true},
		{"{group: search.example, resource: index}", schema.GroupResource{Group: "search.example", Resource: "indices"}, true},
		{"{group: search.example, resource: indices}", schema.GroupResource{Group: "search.example", Resource: "indices"}, true},
		{"{resource: nothing}", schema.GroupResource{Group: "search.example", Resource: "indices"}, false},
	} {
		p, queries := newProvider(t, "rules:\n- seriesQuery: hits\n  resources: {overrides: {namespace: {resource: namespace}, object: "+c.override+
			"}}\n  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'\n", metrics.Labels{"object": "web"})

		value, err := Custom{p}.GetMetricByName(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"},
			provider.CustomMetricInfo{GroupResource: c.resource, Namespaced: true, Metric: "hits"}, labels.Everything())
		if (err == nil) != c.want || err == nil && value.Value.Value() != 7 {
			t.Errorf("override %s: the metric of %s = %v, %v, want it: %v", c.override, c.resource, value, err, c.want)
		}

		const query = `sum(hits{namespace="shop",object="web"}) by (object)`
		if last := (*queries)[len(*queries)-1]; c.want && last != query {
			t.Errorf("override %s: query %s, want %s", c.override, last, query)
		}
	}
}

// TestLookupKeepsNoSpellings checks that what requests name is kept once, whatever its spelling.
func TestLookupKeepsNoSpellings(t *testing.T) {
	p, _ := newProvider(t, "rules: []\n", nil)
	found := &p.Resources.current.Load().found
	found.Clear()

	for _, name := range []string{"pods", "Pods", "PODS", "pOdS"} {
		if _, err := p.Resources.lookup(schema.GroupResource{Resource: name}); err != nil {
			t.Errorf("lookup(%s) = %v, want nil", name, err)
		}
	}

	for _, group := range []string{"search.example", "search", "sea", "s"} {
		_, _ = p.Resources.lookup(schema.GroupResource{Group: group, Resource: "indices"}) // It may be refused.
	}

	var kept []any
	found.Range(func(name, _ any) bool {
		kept = append(kept, name)
		return true
	})
	if len(kept) != 2 {
		t.Errorf("%d resources are kept, want pods and indices alone: %v", len(kept), kept)
	}
}

// TestListedResources checks that the metrics of an override are listed under its resource.
func TestListedResources(t *testing.T) {
	p, _ := newProvider(t, "rules:\n- seriesQuery: hits\n  resources: {overrides: {ns: {resource: namespaces}, i: {group: search.example, resource: index}, gone: {resource: gone}}}\n  metricsQuery: x\n", nil)

	var got []string
	for _, info := range (Custom{p}).ListAllMetrics() {
		got = append(got, info.GroupResource.String()+"/"+info.Metric)
	}
	if want := "indices.search.example/hits namespaces/hits"; strings.Join(got, " ") != want {
		t.Errorf("ListAllMetrics = %v, want %s", got, want)
	}
}

// TestSelectorOfANamespace checks that the namespace in a selector is never dropped: of a rule for all namespaces it selects, and beside the
// namespace of the request it finds nothing.
func TestSelectorOfANamespace(t *testing.T) {
	selector, err := labels.Parse("namespace=queue")
	if err != nil {
		t.Fatal(err)
	}

	for resources, want := range map[string]string{
		"{namespaced: false}": `sum(hits{namespace="queue"})`,
		"{overrides: {namespace: {resource: namespace}}, namespaced: false}": `sum(hits{namespace="queue"})`,
		"{overrides: {namespace: {resource: namespace}}}":                    `sum(hits{namespace="shop",namespace="queue"})`,
	} {
		p, queries := newProvider(t, "externalRules:\n- seriesQuery: hits\n  resources: "+resources+"\n  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'\n", nil)
		if _, err := (External{p}).GetExternalMetric(t.Context(), "shop", selector, provider.ExternalMetricInfo{Metric: "hits"}); err != nil {
			t.Errorf("GetExternalMetric with resources %s: %v", resources, err)
		}
		if last := (*queries)[len(*queries)-1]; last != want {
			t.Errorf("resources %s: query %s, want %s", resources, last, want)
		}
	}
}
