// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
)

// TestErrorsNameNoAddress checks that the answer to a tenant's request has the cause of the failure, and not the address of Prometheus.
func TestErrorsNameNoAddress(t *testing.T) {
	rules, err := promadapter.Parse([]byte(`
externalRules: [{seriesQuery: depth, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'}]
rules:
- seriesQuery: depth
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
`), nil)
	if err != nil {
		t.Fatal(err)
	}

	pods := meta.NewDefaultRESTMapper(nil)
	pods.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	pods.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	resources := &Resources{}
	resources.current.Store(&discovered{mapper: pods})
	failing := false

	p := New(Config{
		Resources: resources,
		Rules:     func() *promadapter.Rules { return rules }, Clock: clock.RealClock{},
		Query: func(context.Context, string, time.Time) ([]metrics.Sample, error) {
			if failing {
				return nil, &prometheus.Error{Kind: prometheus.Unreachable, URL: "http://10.1.2.3:9090/api/v1/query", Err: errors.New("dial tcp 10.1.2.3:9090")}
			}

			return []metrics.Sample{{Labels: metrics.Labels{"__name__": "depth", "namespace": "shop", "pod": "web-0"}, Value: 1}}, nil
		},
	})

	if err := p.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}

	failing = true
	_, external := External{p}.GetExternalMetric(t.Context(), "shop", labels.Everything(), provider.ExternalMetricInfo{Metric: "depth"})
	_, custom := Custom{p}.GetMetricByName(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-0"}, provider.CustomMetricInfo{
		GroupResource: schema.GroupResource{Resource: "pods"}, Namespaced: true, Metric: "depth",
	}, labels.Everything())
	for name, err := range map[string]error{"external": external, "custom": custom} {
		if err == nil || strings.Contains(err.Error(), "10.1.2.3") || !strings.Contains(err.Error(), "depth: Prometheus cannot be reached") {
			t.Errorf("%s: error %v, want one that names the metric and not the address of Prometheus", name, err)
		}
	}
}
