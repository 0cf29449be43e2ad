// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hpametrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"crane.io/crane/pkg/scaling"
)

// newFixture returns a client of a server that answers every request with body, and the paths that were requested.
func newFixture(t *testing.T, body string) (*Client, *[]string) {
	t.Helper()

	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.EscapedPath())
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, body)
	}))

	t.Cleanup(server.Close)
	restClient, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: server.URL, ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	if err != nil {
		t.Fatal(err)
	}

	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Service"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Group: "tenancy.example", Version: "v1", Kind: "Namespace"}, meta.RESTScopeRoot)
	pods := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", Labels: map[string]string{"app": "web"}},
	}).Build()

	return &Client{REST: restClient, Pods: pods, Mapper: mapper}, &paths
}

// TestNamesAreOnePathSegment verifies that the names in a metric, which tenants choose, cannot address anything but that metric: the
// requests carry craned's token.
func TestNamesAreOnePathSegment(t *testing.T) {
	hostile := []string{
		"", ".", "..", "../victim/queue_depth", "../../../../../api/v1/pods", "queue/depth", "a%2fb", "%2e%2e", "..%2fvictim%2fqueue_depth", `a\b/c`,
	}
	metrics := map[string]func(name string) autoscalingv2.MetricSpec{
		"external": func(name string) autoscalingv2.MetricSpec {
			return autoscalingv2.MetricSpec{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: name}}}
		},
		"pods": func(name string) autoscalingv2.MetricSpec {
			return autoscalingv2.MetricSpec{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: name}}}
		},
		"metric of an object": func(name string) autoscalingv2.MetricSpec {
			return autoscalingv2.MetricSpec{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{
				DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "web"},
				Metric:          autoscalingv2.MetricIdentifier{Name: name},
			}}
		},
		"name of an object": func(name string) autoscalingv2.MetricSpec {
			return autoscalingv2.MetricSpec{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{
				DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: name},
				Metric:          autoscalingv2.MetricIdentifier{Name: "hits"},
			}}
		},
	}

	const values = `{"items": [{"metricName": "x", "value": "7", "describedObject": {"name": "web-0"}}]}`
	for name, spec := range metrics {
		for _, bad := range hostile {
			t.Run(name+" "+bad, func(t *testing.T) {
				c, paths := newFixture(t, values)
				m := spec(bad)

				value, err := c.Read(t.Context(), "shop", "app=web", &m, time.Now())
				if !errors.Is(err, scaling.ErrNoMetric) {
					t.Errorf("got %+v, %v: want an error that wraps ErrNoMetric", value, err)
				}
				if len(*paths) > 0 {
					t.Errorf("requested %q, want no request", *paths)
				}
			})
		}

		t.Run(name+" with unusual characters", func(t *testing.T) {
			c, paths := newFixture(t, values)
			m := spec("http:requests?x=1#rate 5m")
			if _, err := c.Read(t.Context(), "shop", "app=web", &m, time.Now()); err != nil {
				t.Fatal(err)
			}

			if len(*paths) != 1 || !strings.Contains((*paths)[0], "/http:requests%3Fx=1%23rate%205m") || !strings.Contains((*paths)[0], "/namespaces/shop/") {
				t.Errorf("requested %q, want one escaped path in namespace shop", *paths)
			}
		})
	}
}

// TestObjectsOfTheCluster verifies that an Object metric of a namespace is that of the own namespace, whatever its name, and that those of
// other cluster-scoped objects are refused: the requests carry craned's token.
func TestObjectsOfTheCluster(t *testing.T) {
	const values = `{"items": [{"metricName": "x", "value": "7", "describedObject": {"name": "shop"}}]}`
	for _, c := range []struct{ apiVersion, kind, name, want string }{
		{"v1", "Namespace", "shop", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/hits"},
		{"v1", "Namespace", "victim", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/hits"},
		{"tenancy.example/v1", "Namespace", "victim", ""},
		{"v1", "Node", "node-0", ""},
	} {
		t.Run(c.apiVersion+" "+c.kind+" "+c.name, func(t *testing.T) {
			reader, paths := newFixture(t, values)
			m := autoscalingv2.MetricSpec{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{
				DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: c.apiVersion, Kind: c.kind, Name: c.name},
				Metric:          autoscalingv2.MetricIdentifier{Name: "hits"},
			}}

			value, err := reader.Read(t.Context(), "shop", "app=web", &m, time.Now())
			switch {
			case c.want == "" && (!errors.Is(err, scaling.ErrNoMetric) || len(*paths) > 0):
				t.Errorf("got %+v, %v from %q: want an error that wraps ErrNoMetric", value, err, *paths)
			case c.want != "" && (err != nil || value.Sum != 7000 || !slices.Equal(*paths, []string{c.want})):
				t.Errorf("got %+v, %v from %q, want 7 from %q", value, err, *paths, c.want)
			}
		})
	}
}

// TestResponseIsBounded verifies that a metrics API cannot make craned hold a response of any size.
func TestResponseIsBounded(t *testing.T) {
	c, _ := newFixture(t, `{"items": [`+strings.Repeat(" ", maxResponse)+`]}`)
	_, err := c.ExternalValues(t.Context(), "shop", "queue", "")
	if !errors.Is(err, scaling.ErrNoMetric) || !strings.Contains(err.Error(), "more than 16 MiB") {
		t.Errorf("ExternalValues returned error %v, want one about more than 16 MiB", err)
	}
}

// TestSelectorOfAMetric checks the selector on the wire: one without requirements selects everything, as no selector does.
func TestSelectorOfAMetric(t *testing.T) {
	everything := &metav1.LabelSelector{}
	for name, c := range map[string]struct {
		selector *metav1.LabelSelector
		want     string
		err      bool
	}{
		"none":            {nil, "", false},
		"an empty one":    {everything, "", false},
		"an empty map":    {&metav1.LabelSelector{MatchLabels: map[string]string{}}, "", false},
		"a label":         {&metav1.LabelSelector{MatchLabels: map[string]string{"queue": "orders"}}, "queue=orders", false},
		"an expression":   {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "queue", Operator: "Exists"}}}, "queue", false},
		"an invalid one":  {&metav1.LabelSelector{MatchLabels: map[string]string{"queue": "a b"}}, "", true},
		"a bad operation": {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "queue", Operator: "Like"}}}, "", true},
	} {
		got, err := formatSelector(c.selector)
		if got != c.want || (err != nil) != c.err || err != nil && !errors.Is(err, scaling.ErrNoMetric) {
			t.Errorf("formatSelector of %s = %q, %v, want %q, error %v", name, got, err, c.want, c.err)
		}
	}
}
