// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/promserver"
)

// Craned is a running craned.
type Craned struct {
	*Process
	// MetricsURL is the URL of its metrics.
	MetricsURL string
	// HealthURL is the URL of its health probes, without their path.
	HealthURL string
}

// NoPrometheus is the URL of a Prometheus server that does not answer.
const NoPrometheus = "http://127.0.0.1:1"

// StartCraned runs craned until the test ends, with the RBAC rules of config/ and without leader election and web API.
// flags override the defaults.
func StartCraned(t testing.TB, timeout time.Duration, control *controlplane.ControlPlane, binary, prometheusURL string, flags ...string) *Craned {
	t.Helper()

	kubeconfig, err := control.KubeconfigFor(t.Context(), "craned", controlplane.ServiceAccount("crane-system", "craned"))
	if err != nil {
		t.Fatal(err)
	}

	address := FreeAddress(t)
	health := FreeAddress(t)
	args := append([]string{
		"--kubeconfig=" + kubeconfig, "--prometheus-address=" + prometheusURL, "--metrics-bind-address=" + address,
		"--metrics-secure=false", "--server-bind-port=0", "--health-probe-bind-address=" + health,
		"--leader-elect=false", // a slow machine could lose the lease
	}, flags...)

	return &Craned{Process: Start(t, timeout, binary, args...), MetricsURL: "http://" + address + "/metrics", HealthURL: "http://" + health}
}

// Metrics returns the text of the metrics.
func (c *Craned) Metrics(ctx context.Context) (string, error) { return Get(ctx, c.MetricsURL) }

// Metric returns the value of a series, which is written as in the text format.
func (c *Craned) Metric(ctx context.Context, series string) (float64, error) {
	page, err := c.Metrics(ctx)
	if err != nil {
		return 0, err
	}

	value, ok := SeriesValue(page, series)
	if !ok {
		return 0, fmt.Errorf("no series %s", series)
	}

	return strconv.ParseFloat(value, 64)
}

// SeriesValue returns the value of a series in metrics in the text format, and whether the series exists. The series is
// written exactly as in the text.
func SeriesValue(metrics, series string) (string, bool) {
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value), true
		}
	}

	return "", false
}

// ServeHistory opens a Prometheus server on a copy of a directory until the test ends.
func ServeHistory(t testing.TB, history string, o promserver.Options) *promserver.Server {
	t.Helper()

	o.Dir = t.TempDir()
	if err := os.CopyFS(o.Dir, os.DirFS(history)); err != nil {
		t.Fatal(err)
	}

	return OpenPrometheus(t, o)
}

// OpenPrometheus opens a Prometheus server until the test ends.
func OpenPrometheus(t testing.TB, o promserver.Options) *promserver.Server {
	t.Helper()

	s, err := promserver.Open(o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})

	return s
}

// RequireHeader starts a proxy in front of a server that answers requests without a header, or with another value, with status 401. It
// returns the URL of the proxy.
func RequireHeader(t testing.TB, target, name string, value func() string) string {
	t.Helper()

	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}

	forward := httputil.NewSingleHostReverseProxy(to)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(name) != value() {
			http.Error(w, "no org id", http.StatusUnauthorized)
			return
		}

		forward.ServeHTTP(w, r)
	}))

	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})

	return server.URL
}
