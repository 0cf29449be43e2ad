// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// traceCollector is a server of OTLP that keeps the name of each span, the attributes of it and of its resource, and its parent's ID.
type traceCollector struct {
	collector.UnimplementedTraceServiceServer

	mu sync.Mutex
	// spans are by name; parents are the IDs of the parent, by the ID of the span.
	spans   map[string]string
	parents map[string]string
	ids     map[string]string
}

func (c *traceCollector) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans[span.Name] = fmt.Sprint(resource.Resource.Attributes, span.Attributes)
				c.parents[span.Name] = string(span.ParentSpanId)
				c.ids[span.Name] = string(span.SpanId)
			}
		}
	}

	return &collector.ExportTraceServiceResponse{}, nil
}

func startTraceCollector(t *testing.T) (c *traceCollector, address string) {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	c = &traceCollector{spans: map[string]string{}, parents: map[string]string{}, ids: map[string]string{}}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	return c, listener.Addr().String()
}

// TestTracesOfRunForecastAndAdoption checks that a pass, a forecast and an adoption are traced, with the objects that they are about.
func TestTracesOfRunForecastAndAdoption(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	traces, address := startTraceCollector(t)
	startCraned(t, prom.URL(), "--tracing-endpoint="+address, "--tracing-sampling-rate-per-million=1000000", "--adoption-dry-run")
	create(t, c, deployment("shop", "web"))
	create(t, c, rule("traced", "24h", "shop"))
	awaitRule(t, c, "traced", "RoundCompleted")

	recs, err := recommendations(t.Context(), c, "traced")
	if err != nil {
		t.Fatal(err)
	}

	rec := recs["shop/web"]
	patch := client.MergeFrom(rec.DeepCopy())
	rec.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeAuto
	if err := c.Patch(t.Context(), &rec, patch); err != nil {
		t.Fatal(err)
	}

	create(t, c, &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "traced"},
		Spec: predictionv1alpha1.TimeSeriesPredictionSpec{
			TargetRef:               &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
			PredictionWindowSeconds: 3600,
			PredictionMetrics: []predictionv1alpha1.PredictionMetric{{
				ResourceIdentifier: "cpu", Type: predictionv1alpha1.ResourceQueryMetricType, ResourceQuery: new(corev1.ResourceCPU),
				Algorithm: predictionv1alpha1.Algorithm{AlgorithmType: predictionv1alpha1.AlgorithmTypeDSP},
			}},
		},
	})

	eventually(t, "all spans are exported", func(context.Context) error {
		traces.mu.Lock()
		defer traces.mu.Unlock()

		for name, want := range map[string]string{
			"recommendation.pass": "traced", "recommendation.gather": "", "recommendation.decide": "", "recommendation.act": "",
			"prediction.forecast": "shop", "prediction.read": "", "adoption.evaluate": "apps/Deployment/shop/web",
		} {
			if got, ok := traces.spans[name]; !ok || !strings.Contains(got, want) || !strings.Contains(got, "craned") {
				return fmt.Errorf("span %s: %q", name, got)
			}
		}

		if traces.parents["recommendation.gather"] == "" || traces.parents["recommendation.pass"] != "" {
			return errors.New("the gathering of a pass is not a part of it")
		}

		return nil
	})
}

// TestProfiles checks that profiles are served beside the metrics over TLS, only with the right to get their path.
func TestProfiles(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)

	for name, role := range map[string]string{"profiler": "craned-profile-reader", "profile-scraper": "craned-metrics-reader"} {
		create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
		create(t, c, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "shop", Name: name}},
		})
	}

	craned := startCraned(t, prom.URL(), "--metrics-secure=true", "--enable-profiling")
	base := strings.TrimSuffix(strings.Replace(craned.MetricsURL, "http:", "https:", 1), "/metrics")
	eventually(t, "profiles are served", func(ctx context.Context) error {
		status, page, err := getAs(ctx, base+"/debug/pprof/goroutine?debug=1", token(t, "profiler"))
		if err == nil && (status != http.StatusOK || !strings.Contains(page, "goroutine profile")) {
			err = fmt.Errorf("status %d: %.100s", status, page)
		}

		return err
	})

	for name, want := range map[string]int{"profile-scraper": http.StatusForbidden, "": http.StatusUnauthorized} {
		bearer := ""
		if name != "" {
			bearer = token(t, name)
		}

		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1"} {
			if status, _, err := getAs(t.Context(), base+path, bearer); err != nil || status != want {
				t.Errorf("%s as %q: status %d, want %d; %v", path, name, status, want, err)
			}
		}
	}

	if status, _, err := getAs(t.Context(), base+"/debug/pprof/cmdline", token(t, "profiler")); err != nil || status != http.StatusNotFound {
		t.Errorf("the command line: status %d, %v, want 404", status, err)
	}
}
