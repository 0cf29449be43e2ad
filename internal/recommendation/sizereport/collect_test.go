// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package sizereport

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/rightsize"
)

// usageOf returns the series of one container with constant usage.
func usageOf(namespace, cluster string) []promserver.Series {
	series := func(name string, value func(minute int) float64, more ...string) promserver.Series {
		pairs := append([]string{
			"__name__", name, "namespace", namespace, "pod", "web-0", "container", "app", "cluster", cluster, "id", "/" + cluster,
		}, more...)

		return promserver.Series{
			Labels: labels.FromStrings(pairs...),
			Fill: func(values []float64, first int) {
				for i := range values {
					values[i] = value(first + i)
				}
			},
		}
	}
	constant := func(v float64) func(int) float64 { return func(int) float64 { return v } }

	return []promserver.Series{
		series("container_cpu_usage_seconds_total", func(minute int) float64 { return 6 * float64(minute) }),
		series("container_memory_working_set_bytes", constant(1<<28)),
		series("kube_pod_container_info", constant(1)),
		series("kube_pod_container_resource_requests", constant(1), "resource", "cpu"),
	}
}

// TestCollect_NeedsAllNamespaces checks that a check of requests is refused for a namespace that cannot be read, and for no other.
func TestCollect_NeedsAllNamespaces(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	end := time.Date(2026, 3, 18, 12, 0, 0, 0, time.UTC)
	grid := promserver.Grid{Start: end.Add(-6 * time.Hour), End: end, Step: time.Minute}
	dir := t.TempDir()

	var all []promserver.Series
	for _, part := range [][]promserver.Series{usageOf("mixed", "eu"), usageOf("mixed", "us"), usageOf("shop", "eu")} {
		all = append(all, part...)
	}

	if _, err := promserver.WriteBlocks(t.Context(), dir, grid, all); err != nil {
		t.Fatal(err)
	}

	now := func() time.Time { return end }
	server, err := promserver.Open(promserver.Options{Dir: dir, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })

	prices, err := pricebook.Load("")
	if err != nil {
		t.Fatal(err)
	}

	policy, err := rightsize.PolicyByName(rightsize.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}

	for _, tc := range []struct {
		name       string
		namespaces []string
		needsAll   bool
		want       string
		warning    bool
	}{
		{name: "all", needsAll: true, want: "namespace mixed is left out"},
		{name: "selected", namespaces: []string{"mixed", "shop"}, needsAll: true, want: "namespace mixed is left out"},
		{name: "another one", namespaces: []string{"shop"}, needsAll: true},
		{name: "no check", namespaces: []string{"mixed", "shop"}, warning: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var output bytes.Buffer
			prometheus := historyserver.NewServer()
			prometheus.Address = server.URL()
			prometheus.Now = now
			policies := rightsize.PolicySet{Default: policy}
			collector := &Collector{
				Prometheus:         prometheus,
				Kubernetes:         &clusteraccess.Access{},
				Namespaces:         tc.namespaces,
				SelectWorkloads:    func(all []workload.Workload) ([]workload.Workload, error) { return all, nil },
				Policies:           policies,
				HistoryLength:      policies.Window(),
				Prices:             prices,
				Cache:              profile.CacheConfig{Off: true},
				NeedsAllNamespaces: tc.needsAll,
				Output:             &output,
				Now:                now,
			}

			report, err := collector.Collect(t.Context())
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("Collect(%v) = %v, %v, want the error %q", tc.namespaces, report, err, tc.want)
				}

				return
			}

			if err != nil || len(report.Items) != 1 || report.Items[0].Workload.Namespace != "shop" {
				t.Fatalf("Collect(%v) = %+v, %v, want the workload of shop", tc.namespaces, report, err)
			}

			if warned := strings.Contains(output.String(), "namespace mixed is left out"); warned != tc.warning {
				t.Errorf("Collect(%v) printed %q, want a warning for mixed: %v", tc.namespaces, output.String(), tc.warning)
			}
		})
	}
}
