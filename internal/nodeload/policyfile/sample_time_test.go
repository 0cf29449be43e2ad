// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policyfile_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"

	"crane.io/crane/internal/nodeload/policyfile"
)

// TestSampleTimeOfDeadExporter checks in Prometheus's engine that the shipped sampleTime queries return the time of the
// last sample of an exporter that is dead, while the averages still have values, and of one whose samples arrive late.
func TestSampleTimeOfDeadExporter(t *testing.T) {
	const input = `load 30s
  container_cpu_usage_seconds_total{id="/",instance="alive",node="alive"} 0+15x40
  container_cpu_usage_seconds_total{id="/",instance="dead",node="dead"} 0+15x32 stale
  container_cpu_usage_seconds_total{id="/",instance="late",node="late"} 0+15x36
  node_memory_MemAvailable_bytes{instance="alive",node="alive"} 1+0x40
  node_memory_MemAvailable_bytes{instance="dead",node="dead"} 1+0x32 stale
  node_memory_MemAvailable_bytes{instance="late",node="late"} 1+0x36
  machine_cpu_cores{instance="alive",node="alive"} 4+0x40
  machine_cpu_cores{instance="dead",node="dead"} 4+0x40
  machine_cpu_cores{instance="late",node="late"} 4+0x40
  node_memory_MemTotal_bytes{instance="alive",node="alive"} 4+0x40
  node_memory_MemTotal_bytes{instance="dead",node="dead"} 4+0x40
  node_memory_MemTotal_bytes{instance="late",node="late"} 4+0x40
`

	storage := promqltest.LoadedStorage(t, input)
	defer storage.Close()

	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	defer engine.Close()

	policy, err := policyfile.Builtin()
	if err != nil {
		t.Fatalf("Builtin: %v, want no error", err)
	}

	now := time.Unix(40*30, 0)
	read := func(query string) map[string]float64 {
		t.Helper()

		q, err := engine.NewInstantQuery(context.Background(), storage, nil, query, now)
		if err != nil {
			t.Fatalf("query %q: %v, want no error", query, err)
		}
		defer q.Close()

		vector, err := q.Exec(context.Background()).Vector()
		if err != nil {
			t.Fatalf("query %q: %v, want a vector", query, err)
		}

		out := map[string]float64{}
		for _, s := range vector {
			out[s.Metric.Get("node")] = s.F
		}

		return out
	}

	want := map[string]float64{"alive": 40 * 30, "dead": 32 * 30, "late": 36 * 30}
	for _, m := range policy.Metrics {
		values := read(m.Query)
		times := read(m.SampleTime)
		for node, sampleTime := range want {
			if _, ok := values[node]; !ok {
				t.Errorf("%s of %s has no value, want one", m.Name, node)
			}
			if times[node] != sampleTime {
				t.Errorf("%s of %s: newest sample at %v, want %v", m.Name, node, times[node], sampleTime)
			}
		}
	}
}
