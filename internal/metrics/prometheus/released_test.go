// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/testbed/promserver"
)

// TestAReleasedPrometheusReadsTheSame checks that the embedded engine and an installed prometheus, which may be
// several years older, return the same history.
func TestAReleasedPrometheusReadsTheSame(t *testing.T) {
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no prometheus binary in PATH; install the prometheus package to run this")
	}
	w := many()
	w.memory("team-0", "db-0", "db", func(at time.Time) float64 { return 1e9 + float64(at.Unix()%86400)*1e4 })
	w.owned(podOwnerMetric, "team-0", "pod", "db-0", "StatefulSet", "database", constant(1))
	w.add(constant(1.5), "__name__", requestsMetric, "namespace", "team-0", "pod", "db-0", "container", "db", "resource", "cpu")
	embedded := w.source(t, nil)
	released := newSource(t, startReleased(t, binary, w), func(c *Config) { c.Now = func() time.Time { return w.grid.End } })
	report, err := released.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("compared with %s", report.Server)

	almost := cmp.Comparer(func(a, b float64) bool {
		return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-4*math.Max(math.Abs(a), math.Abs(b))
	})
	for _, resource := range []metrics.UsageKind{metrics.CPU, metrics.Memory} {
		req := metrics.UsageRequest{Resource: resource, Start: w.grid.Start, End: w.grid.End}
		want := readAll(t, embedded, req)
		if len(want) == 0 {
			t.Errorf("no %s at all", resource)
		}
		got := readAll(t, released, req)
		// Versions extrapolate a rate to the start of a series differently.
		for _, h := range []history{want, got} {
			for _, s := range h {
				s.Values[0] = 0
			}
		}
		if diff := cmp.Diff(want, got, almost); diff != "" {
			t.Errorf("%s: %s", resource, diff)
		}
	}
	want, err := embedded.Inventory(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := released.Inventory(t.Context(), nil)
	if diff := cmp.Diff(want, got); err != nil || diff != "" || len(want) == 0 {
		t.Errorf("inventory of %d: %v %s", len(want), err, diff)
	}
	ours, err := embedded.Probe(t.Context())
	if diff := cmp.Diff(ours, report, cmpopts.IgnoreFields(metrics.SourceReport{}, "Server", "ClockSkew", "Warnings")); err != nil || diff != "" {
		t.Errorf("probe: %v %s", err, diff)
	}
}

// startReleased runs a binary on the history until the test ends and returns its address when it is ready.
func startReleased(t *testing.T, binary string, w *fixture) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if _, err := promserver.WriteBlocks(t.Context(), data, w.grid, w.series); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "--config.file="+config,
		"--storage.tsdb.path="+data, "--storage.tsdb.retention.time=10y", "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		cmd.Wait() // the error reports the kill
	})
	url := "http://" + address
	probe := newSource(t, url, func(c *Config) { c.MaxAttempts = 1 })
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-again.C {
		_, err := probe.Instant(t.Context(), "vector(1)", time.Unix(1, 0))
		if err == nil {
			return url
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("prometheus does not answer: %v\n%s", err, text)
		}
	}
}
