// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policyfile_test

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/units"
)

// TestCacheHeavyNode checks that the built-in policy and the recording rules measure the same memory load, by which a node full of page
// cache in use is not hot: of 100 GiB 60 are available, though the working set of the root cgroup is 95 GiB.
func TestCacheHeavyNode(t *testing.T) {
	grid := promserver.Grid{Start: time.Date(2026, 3, 4, 23, 0, 0, 0, time.UTC), End: time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC), Step: 15 * time.Second}
	dir := t.TempDir()
	node := "10.0.0.1"
	newSeries := func(gib float64, pairs ...string) promserver.Series {
		return promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, _ int) {
			for i := range dst {
				dst[i] = gib * (1 << 30)
			}
		}}
	}

	if _, err := promserver.WriteBlocks(t.Context(), dir, grid, []promserver.Series{
		newSeries(100, "__name__", "machine_memory_bytes", "instance", node+":10250"),
		newSeries(95, "__name__", "container_memory_working_set_bytes", "id", "/", "instance", node+":10250"),
		newSeries(100, "__name__", "node_memory_MemTotal_bytes", "instance", node+":9100"),
		newSeries(60, "__name__", "node_memory_MemAvailable_bytes", "instance", node+":9100"),
	}); err != nil {
		t.Fatalf("writing the samples: %v", err)
	}

	server, err := promserver.Open(promserver.Options{Dir: dir})
	if err != nil {
		t.Fatalf("starting Prometheus: %v", err)
	}
	defer func() {
		if err := server.Close(); err != nil {
			t.Errorf("stopping Prometheus: %v", err)
		}
	}()

	config := prometheus.DefaultConfig()
	config.Address = server.URL()
	source, err := prometheus.New(config)
	if err != nil {
		t.Fatalf("New of the Prometheus source: %v, want no error", err)
	}

	for name, query := range memoryQueries(t) {
		got, err := source.Vector(t.Context(), query, grid.End.Add(-grid.Step))
		if err != nil || len(got) != 1 || math.Abs(got[0].Value-40) > 1e-6 {
			t.Errorf("%s = %+v, %v, want 40 %%", name, got, err)
		}
	}
}

// memoryQueries returns the expressions of the present memory load.
func memoryQueries(t *testing.T) map[string]string {
	t.Helper()

	policy, err := policyfile.Builtin()
	if err != nil {
		t.Fatalf("Builtin: %v, want no error", err)
	}

	out := map[string]string{}
	for _, m := range policy.Metrics {
		if m.Resource == units.Memory {
			out["built-in "+m.Name] = m.Query
		}
	}

	var file struct {
		Groups []struct {
			Rules []struct{ Record, Expr string }
		}
	}

	if err := yaml.Unmarshal(shipped(t, "recording-rules.yaml"), &file); err != nil {
		t.Fatalf("decoding recording-rules.yaml: %v", err)
	}

	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Record == "mem_usage_active" {
				out["recorded "+r.Record] = r.Expr
			}
		}
	}

	if len(out) != 2 {
		t.Fatalf("expressions of the memory load %v, want a built-in and a recorded one", out)
	}

	return out
}
