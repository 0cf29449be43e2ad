// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/testbed/promserver"
)

// TestCapacities checks the limits of each day, also of pods and of a day that is not over, and the nodes, also deleted ones.
func TestCapacities(t *testing.T) {
	start := today.Add(-3 * day)
	end := today.Add(10 * time.Hour)
	w := newFixture(start, end)
	limit := func(metric, pod, resource string, value func(time.Time) float64) {
		for _, job := range []string{"a", "b"} {
			w.add(value, "__name__", metric, "namespace", "shop", "pod", pod, "container", "app", "resource", resource, "job", job)
		}
	}

	limit(limitsMetric, "web-0", "cpu", from(today.Add(-30*time.Hour), 1, 2))
	limit(limitsMetric, "web-0", "memory", constant(1<<30))
	limit(limitsMetric, "new-0", "cpu", between(today.Add(2*time.Hour), end, 0.3))
	limit(initLimitsMetric, "side-0", "cpu", constant(0.25))
	counter := func(metric, pod string, perSecond func(time.Time) float64) {
		for _, job := range []string{"a", "b"} {
			w.add(func(t time.Time) float64 { return perSecond(t) * t.Sub(start).Seconds() }, "__name__", metric, "namespace", "shop", "pod", pod, "container", "app",
				"image", "app", "id", "/"+pod, "job", job)
		}
	}
	counter(periodsMetric, "web-0", constant(10))
	counter(throttledMetric, "web-0", constant(4))
	counter(periodsMetric, "calm-0", constant(10))
	counter(throttledMetric, "calm-0", constant(0))
	counter(periodsMetric, "idle-0", constant(0))
	counter(throttledMetric, "idle-0", constant(0))
	w.add(constant(8), "__name__", capacityMetric, "node", "n1", "resource", "cpu")
	w.add(constant(32*gib), "__name__", capacityMetric, "node", "n1", "resource", "memory")
	w.add(between(start, start.Add(day), 64), "__name__", capacityMetric, "node", "gone", "resource", "cpu")
	w.add(constant(4), "__name__", allocatableMetric, "node", "n2", "resource", "cpu")

	s := w.source(t, nil)
	before := s.Stats().Queries
	got, err := s.Capabilities().Capacity.Capacities(t.Context(), metrics.Window{Start: start, End: end}, []string{"shop"})
	if err != nil {
		t.Fatal(err)
	}

	if n := s.Stats().Queries - before; n != 3 {
		t.Errorf("Capacities sent %d queries, want 3", n)
	}

	for _, c := range []struct {
		pod, node   string
		resource    metrics.UsageKind
		at          time.Time
		limit, most float64
	}{
		{"web-0", "n1", metrics.CPU, start.Add(time.Hour), 1, 1.1},
		{"web-0", "n1", metrics.CPU, today.Add(-40 * time.Hour), 2, 2.2}, // The day of the change.
		{"web-0", "n1", metrics.CPU, today.Add(-time.Hour), 2, 2.2},
		{"web-0", "n1", metrics.CPU, today.Add(time.Hour), 2, 2.2},
		{"web-0", "n1", metrics.Memory, today, 1 << 30, 1.1 * (1 << 30)},
		{"web-0", "n1", metrics.UnreclaimableMemory, today, 1 << 30, 1.1 * (1 << 30)},
		{"new-0", "n1", metrics.CPU, today.Add(5 * time.Hour), 0.3, 0.33},
		{"new-0", "n1", metrics.CPU, today.Add(-5 * time.Hour), 0, 8.08},
		{"side-0", "n1", metrics.CPU, today, 0.25, 0.275},
		{"none-0", "n2", metrics.CPU, today, 0, 4.04},
		{"none-0", "gone", metrics.CPU, today, 0, 64.64},
		{"none-0", "", metrics.CPU, today, 0, 64.64},
		{"none-0", "n2", metrics.Memory, today, 0, 1.01 * 32 * gib},
	} {
		key := metrics.ContainerKey{Workload: workload.Ref{Namespace: "shop"}, Pod: c.pod, Container: "app", Node: c.node}
		limit := got.Limit(key, c.resource, c.at)
		most := got.Most(key, c.resource, c.at)
		if limit != c.limit || most < 0.999*c.most || most > 1.001*c.most {
			t.Errorf("%s of %s on %q at %v: Limit %v, Most %v; want %v and %v", c.resource, c.pod, c.node, c.at, limit, most, c.limit, c.most)
		}
	}

	for pod, want := range map[string]float64{"web-0": 0.4, "calm-0": 0, "idle-0": -1, "new-0": -1} {
		key := metrics.ContainerKey{Workload: workload.Ref{Namespace: "shop"}, Pod: pod, Container: "app"}
		for _, at := range []time.Time{start.Add(time.Hour), today.Add(-time.Hour), today.Add(time.Hour)} {
			share, ok := got.Throttling(key, at)
			if ok != (want >= 0) || ok && (share < want-0.02 || share > want+0.02) {
				t.Errorf("Throttling of %s at %v = %v, %t, want %v (-1 is unknown)", pod, at, share, ok, want)
			}
		}
	}

	var unknown *metrics.Capacities
	if _, ok := unknown.Throttling(metrics.ContainerKey{}, today); ok {
		t.Error("Throttling without capacities is known, want it unknown")
	}

	if limit, most := unknown.Limit(metrics.ContainerKey{}, metrics.CPU, today), unknown.Most(metrics.ContainerKey{}, metrics.CPU, today); limit != 0 || most != 0 {
		t.Errorf("without capacities: Limit %v, Most %v, want 0", limit, most)
	}
}

// TestCapacitiesOfALimitedServer checks that a server that rejects the limits of several days at once is asked for fewer, and that nodes that
// it rejects at all are unknown rather than an error.
func TestCapacitiesOfALimitedServer(t *testing.T) {
	start := today.Add(-5 * day)
	end := today.Add(10 * time.Hour)
	w := newFixture(start, end)
	w.add(constant(1), "__name__", limitsMetric, "namespace", "shop", "pod", "web-0", "container", "app", "resource", "cpu")
	w.add(constant(8), "__name__", capacityMetric, "node", "n1", "resource", "cpu")

	server := w.serve(t, promserver.Options{Middleware: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			severalDays := r.URL.Path == rangePath && r.FormValue("start") != r.FormValue("end")
			if severalDays || strings.Contains(r.FormValue("query"), capacityMetric) {
				answerWith(422, "application/json", `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}`)(rw, r)
				return
			}

			h.ServeHTTP(rw, r)
		})
	}})

	s := newSource(t, server.URL(), func(c *Config) { c.Now = func() time.Time { return end } })
	got, err := s.Capabilities().Capacity.Capacities(t.Context(), metrics.Window{Start: start, End: end}, []string{"shop"})
	if err != nil {
		t.Fatalf("Capacities() of a server with limits: %v, want no error", err)
	}

	key := metrics.ContainerKey{Workload: workload.Ref{Namespace: "shop"}, Pod: "web-0", Container: "app", Node: "n1"}
	for at := start; at.Before(end); at = at.Add(day) {
		if limit := got.Limit(key, metrics.CPU, at.Add(time.Hour)); limit != 1 {
			t.Errorf("Limit on %s = %v, want 1", at.Format(time.DateOnly), limit)
		}
	}

	if len(got.Nodes) > 0 {
		t.Errorf("Nodes = %v, want none", got.Nodes)
	}
}
