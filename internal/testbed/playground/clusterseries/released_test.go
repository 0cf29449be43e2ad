// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"crane.io/crane/test/metricstore"
)

// TestReleasedPrometheusReadsOurBlocks runs an installed prometheus binary, if there is one, on a copy of the data and
// compares the results of queries.
func TestReleasedPrometheusReadsOurBlocks(t *testing.T) {
	metricstore.Program(t, "prometheus")
	f := newFixture(t, time.Now().UTC().Truncate(2*time.Minute)) // Prometheus deletes blocks by their age
	data := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(data, os.DirFS(f.dir)); err != nil {
		t.Fatal(err)
	}

	c, err := api.NewClient(api.Config{Address: metricstore.Prometheus(t, data, "global: {scrape_interval: 1m}\n")})
	if err != nil {
		t.Fatal(err)
	}

	other := v1.NewAPI(c)
	// Not on the grid: since version 3 a range excludes its own start, before it did not.
	at := f.past.End.Add(-90 * time.Second)
	for _, q := range []string{
		`count({__name__=~".+"})`,
		`sum by (namespace, pod, container) (rate(container_cpu_usage_seconds_total{container!=""}[5m]))`,
		`quantile_over_time(0.95, container_memory_working_set_bytes{container!=""}[1d])`,
		`max by (namespace, pod) (max_over_time(container_memory_working_set_bytes{container!=""}[2d:1h]))`,
		`sum by (owner_name) (kube_pod_owner * on (namespace, pod) group_left () sum by (namespace, pod) (kube_pod_container_resource_requests{resource="cpu"}))`,
		`100 - avg by (instance) (irate(node_cpu_seconds_total{mode="idle"}[10m])) * 100`,
		`count_over_time(kube_pod_status_phase[2d])`,
		`increase(kube_pod_container_status_restarts_total[2d])`,
	} {
		ours := f.query(t, q, at)
		theirs := vectorOf(t, other, q, at)
		if len(ours) == 0 || len(ours) != len(theirs) {
			t.Errorf("query %s: %d series from the released Prometheus, want %d as from ours (at least 1)", q, len(theirs), len(ours))
			continue
		}

		want := map[string]float64{}
		for _, s := range ours {
			want[s.Metric.String()] = float64(s.Value)
		}

		for _, s := range theirs {
			w, ok := want[s.Metric.String()]
			if got := float64(s.Value); !ok || math.Abs(got-w) > 1e-9*math.Abs(w)+1e-12 {
				t.Errorf("query %s: %s of the released Prometheus = %v, want %v as from ours", q, s.Metric, got, w)
				break
			}
		}
	}
}

func vectorOf(t *testing.T, c v1.API, q string, at time.Time) model.Vector {
	t.Helper()

	v, _, err := c.Query(t.Context(), q, at)
	if err != nil {
		t.Fatalf("query %s of the released Prometheus: %v, want a vector", q, err)
	}

	return v.(model.Vector)
}
