// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"crane.io/crane/internal/kube/pki"
)

// newTestProvider returns a provider of an adapter that a handler implements.
func newTestProvider(t *testing.T, handler http.HandlerFunc) *Provider {
	t.Helper()

	authority, err := pki.NewAuthority("test", time.Hour, time.Now)
	if err != nil {
		t.Fatal(err)
	}

	pair, err := authority.IssueServingFor(time.Hour, "other.monitoring.svc")
	if err != nil {
		t.Fatal(err)
	}

	both, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}

	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{both}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)

	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, authority.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}

	p, err := New(Config{
		Namespace: "monitoring", Service: "other", Port: 443, Address: server.Listener.Addr().String(), CAFile: ca, Token: "secret",
	}, time.Minute, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}

	return p
}

// TestOldAdapter checks that an adapter with v1beta1 of custom metrics alone is read in that version.
func TestOldAdapter(t *testing.T) {
	var asked []string
	p := newTestProvider(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}

		switch r.URL.Path {
		case "/apis/custom.metrics.k8s.io/v1beta1":
			_, _ = io.WriteString(w, `{"resources":[{"name":"pods/rps","namespaced":true},{"name":"nonsense"}]}`)
		case "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/web-0/rps":
			_, _ = io.WriteString(w, `{"items":[{"describedObject":{"kind":"Pod","name":"web-0"},"metricName":"rps","timestamp":"2026-03-04T12:00:00Z","value":"1500m"}]}`)
		case "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/metrics/rps":
			_, _ = io.WriteString(w, `{"items":[{"describedObject":{"kind":"Namespace","name":"shop"},"metricName":"rps","value":"3"}]}`)
		default:
			http.NotFound(w, r)
		}
	})

	found, err := p.discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	p.served = found
	if (External{p}).Serves("x") || !(Custom{p}).Serves("x") || fmt.Sprint((Custom{p}).ListAllMetrics()) != "[pods/rps(namespaced)]" {
		t.Errorf("discover() = %+v, want no external metric and pods/rps", found)
	}

	info := provider.CustomMetricInfo{GroupResource: schema.GroupResource{Resource: "pods"}, Namespaced: true, Metric: "rps"}
	selector, _ := labels.Parse("verb=get")

	value, err := Custom{p}.GetMetricByName(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-0"}, info, selector)
	if err != nil || value.Value.String() != "1500m" || value.Metric.Name != "rps" || value.Timestamp.IsZero() {
		t.Errorf("GetMetricByName(shop/web-0) = %+v, %v, want rps of 1500m with a timestamp", value, err)
	}
	if last := asked[len(asked)-1]; !strings.HasSuffix(last, "?metricLabelSelector=verb%3Dget") {
		t.Errorf("the last request is %s, want the selector of the metric", last)
	}

	info.GroupResource.Resource = "namespaces"
	if value, err := (Custom{p}).GetMetricByName(t.Context(), types.NamespacedName{Name: "shop"}, info, labels.Everything()); err != nil || value.Value.String() != "3" {
		t.Errorf("GetMetricByName(namespace shop) = %+v, %v, want 3", value, err)
	}
}

// TestHostileAnswers checks that invalid responses are errors with a code.
func TestHostileAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		body string
		want int32
		say  string
	}{
		"no JSON":         {200, "<html>", http.StatusServiceUnavailable, "not the metrics API"},
		"a status":        {404, `{"kind":"Status","message":"no such metric"}`, http.StatusNotFound, "no such metric"},
		"a bare 404":      {404, "page not found", http.StatusNotFound, "Not Found"},
		"denied":          {403, `{"message":"forbidden"}`, http.StatusServiceUnavailable, "denies this adapter access: forbidden"},
		"a bad request":   {400, `{"message":"bad selector"}`, http.StatusBadRequest, "bad selector"},
		"a fault":         {500, "boom", http.StatusServiceUnavailable, "status 500"},
		"a redirect":      {302, "", http.StatusServiceUnavailable, "status 302"},
		"a bad quantity":  {200, `{"items":[{"metricName":"x","value":"many"}]}`, http.StatusServiceUnavailable, "not the metrics API"},
		"an endless body": {200, strings.Repeat(" ", maxBodyBytes+1), http.StatusUnprocessableEntity, "longer than 8 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestProvider(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			})

			list, err := External{p}.GetExternalMetric(t.Context(), "shop", labels.Everything(), provider.ExternalMetricInfo{Metric: "x"})
			var status apierrors.APIStatus
			if list != nil || !errors.As(err, &status) || status.Status().Code != c.want || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %v, %v; want code %d and %q", list, err, c.want, c.say)
			}
		})
	}
}

// TestErrorsNameNoAddress checks that clients, who are tenants, do not see the address of the other adapter.
func TestErrorsNameNoAddress(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"cut answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		},
	} {
		p := newTestProvider(t, handler)
		_, err := External{p}.GetExternalMetric(t.Context(), "shop", labels.Everything(), provider.ExternalMetricInfo{Metric: "x"})
		if err == nil || strings.Contains(err.Error(), "monitoring") || strings.Contains(err.Error(), "http") {
			t.Errorf("%s: GetExternalMetric() returned error %v, want one without the address of the other adapter", name, err)
		}
	}
}
