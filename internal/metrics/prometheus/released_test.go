// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/metricstore"
	"crane.io/crane/test/nightly"
)

// TestAReleasedPrometheusReadsTheSame checks that the embedded engine and a released Prometheus, which may be
// several years older, return the same history.
func TestAReleasedPrometheusReadsTheSame(t *testing.T) {
	w := releasedFixture()
	data := filepath.Join(t.TempDir(), "data")
	if _, err := promserver.WriteBlocks(t.Context(), data, w.grid, w.series); err != nil {
		t.Fatal(err)
	}

	compareSources(t, w, metricstore.Prometheus(t, data, ""), comparison{relative: 1e-4, mean: 1e-4})
}

// TestVictoriaMetricsReadsTheSame checks that an installed victoria-metrics returns the history that Prometheus returns. Its rate does
// not extrapolate to the ends of the window but uses the sample before it: where the usage changes, a value contains the change that
// Prometheus extrapolates over, a fifth of the window. The mean is the same.
func TestVictoriaMetricsReadsTheSame(t *testing.T) {
	w := releasedFixture()
	compareSources(t, w, metricstore.VictoriaMetrics(t, w.grid, w.series, "-search.latencyOffset=0s"), comparison{relative: 0.02, absolute: 0.2, mean: 0.01})
}

// TestThanosReadsTheSame checks that a querier of Thanos returns the history that Prometheus returns, half of it from a bucket.
func TestThanosReadsTheSame(t *testing.T) {
	w := releasedFixture()
	url, stopGateway := metricstore.Thanos(t, w.grid, w.series)
	compareSources(t, w, url, comparison{relative: 1e-4, mean: 1e-4})
	stopGateway()
	source := newSource(t, url, func(c *Config) {
		c.MaxAttempts = 1
		c.Now = func() time.Time { return w.grid.End }
	})

	rows := 0
	var failure error
	for _, err := range source.Capabilities().Usage.Usage(t.Context(), metrics.UsageRequest{Resource: metrics.CPU, Start: w.grid.Start, End: w.grid.End}) {
		rows++

		if err != nil {
			failure = err
		}
	}

	if failure == nil {
		t.Errorf("%d chunks without an error while the store of the older half is down, want an error", rows)
	}
	t.Log(failure)
}

// TestMimirReadsTheSame checks that Mimir returns the history of a tenant as Prometheus does, and none of it without the tenant.
func TestMimirReadsTheSame(t *testing.T) {
	nightly.Only(t)
	w := releasedFixture()
	url := metricstore.Mimir(t, w.grid, w.series)
	compareSources(t, w, url, comparison{relative: 1e-4, mean: 1e-4}, func(c *Config) {
		c.Headers = map[string]string{metricstore.TenantHeader: metricstore.Tenant}
	})

	_, err := newSource(t, url, nil).Probe(t.Context())
	var failure *Error
	if !errors.As(err, &failure) || failure.Kind != Denied || !strings.Contains(failure.Advice, metricstore.TenantHeader) {
		t.Errorf("Probe without a tenant: error %v, want Denied with advice that names %s", err, metricstore.TenantHeader)
	}
}

// releasedFixture returns the history that is compared.
func releasedFixture() *fixture {
	w := many()
	w.memory("team-0", "db-0", "db", func(at time.Time) float64 { return 1e9 + float64(at.Unix()%86400)*1e4 })
	w.owned(podOwnerMetric, "team-0", "pod", "db-0", "StatefulSet", "database", constant(1))
	w.add(constant(1.5), "__name__", requestsMetric, "namespace", "team-0", "pod", "db-0", "container", "db", "resource", "cpu")

	return w
}

// comparison has the differences that two servers may have: of a value, relative to it or in cores, and of the mean of a series.
type comparison struct{ relative, absolute, mean float64 }

// compareSources compares the embedded engine with a server at an address that has the same history.
func compareSources(t *testing.T, w *fixture, address string, by comparison, changes ...func(*Config)) {
	t.Helper()

	embedded := w.source(t, nil)
	released := newSource(t, address, func(c *Config) {
		c.Now = func() time.Time { return w.grid.End }
		for _, change := range changes {
			change(c)
		}
	})

	report, err := released.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("compared with %s", report.Server)

	almost := cmp.Comparer(func(a, b float64) bool {
		return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= max(by.absolute, by.relative*math.Max(math.Abs(a), math.Abs(b)))
	})
	for _, resource := range []metrics.UsageKind{metrics.CPU, metrics.Memory} {
		req := metrics.UsageRequest{Resource: resource, Start: w.grid.Start, End: w.grid.End}
		want := readAll(t, embedded, req)
		if len(want) == 0 {
			t.Errorf("Usage of %s from the embedded server is empty, want some", resource)
		}

		got := readAll(t, released, req)
		for key, s := range got {
			// A series whose last window has one sample ends a step later where rate uses the sample before the window.
			if n := len(want[key].Values); by.absolute > 0 && len(s.Values) == n+1 {
				s.Values = s.Values[:n]
				got[key] = s
			}
		}

		// Servers extrapolate a rate to the ends of a series differently.
		for _, h := range []history{want, got} {
			for _, s := range h {
				s.Values[0], s.Values[len(s.Values)-1] = 0, 0
			}
		}

		if diff := cmp.Diff(want, got, almost); diff != "" {
			t.Errorf("Usage of %s differs (-embedded +released), want almost the same:\n%s", resource, diff)
		}

		worst := 0.0
		for key, s := range want {
			worst = max(worst, math.Abs(mean(got[key].Values)/mean(s.Values)-1))
		}

		t.Logf("%s of %d containers: the means differ by %.4f %% at most", resource, len(want), 100*worst)

		if worst > by.mean || math.IsNaN(worst) {
			t.Errorf("means of %s of a container differ by %.4f %%, want at most %.4f %%", resource, 100*worst, 100*by.mean)
		}
	}

	want, err := embedded.Inventory(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	got, err := released.Inventory(t.Context(), nil)
	if diff := cmp.Diff(want, got); err != nil || diff != "" || len(want) == 0 {
		t.Errorf("Inventory differs (-embedded +released), error %v, want the same of %d workloads:\n%s", err, len(want), diff)
	}

	ours, err := embedded.Probe(t.Context())
	if diff := cmp.Diff(ours, report, cmpopts.IgnoreFields(metrics.SourceReport{}, "Server", "ClockSkew", "Warnings")); err != nil || diff != "" {
		t.Errorf("Probe differs (-embedded +released), error %v, want the same:\n%s", err, diff)
	}
}

// mean returns the mean of the values that are numbers.
func mean(values []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range values {
		if !math.IsNaN(v) {
			sum += v
			n++
		}
	}

	return sum / float64(n)
}
