// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
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
	// MetricsURL is the address of its metrics.
	MetricsURL string
}

// StartCraned runs craned until the test ends, with the RBAC rules of config/ and without leader election and web API.
// flags override the defaults.
func StartCraned(t testing.TB, timeout time.Duration, control *controlplane.ControlPlane, binary, prometheusURL string, flags ...string) *Craned {
	t.Helper()
	kubeconfig, err := control.KubeconfigFor(t.Context(), "craned", controlplane.ServiceAccount("crane-system", "craned"))
	if err != nil {
		t.Fatal(err)
	}
	address := FreeAddress(t)
	args := append([]string{
		"--kubeconfig=" + kubeconfig, "--prometheus-address=" + prometheusURL, "--metrics-bind-address=" + address,
		"--metrics-secure=false", "--server-bind-port=0", "--health-probe-bind-address=0",
		"--leader-elect=false", // a slow machine could lose the lease
	}, flags...)
	return &Craned{Process: Start(t, timeout, binary, args...), MetricsURL: "http://" + address + "/metrics"}
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
