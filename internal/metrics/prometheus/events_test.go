// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
)

// TestUnreclaimableMemory checks that the value is the largest difference within an hour of working set and simultaneous page cache, also
// where two jobs scrape the container; that a container without the metric has no value; and that one query finds that no container has it.
func TestUnreclaimableMemory(t *testing.T) {
	start := today.Add(-6 * time.Hour)
	w := newFixture(start, today)

	// The usage grows by one gigabyte in the third hour, half of which is cache.
	grows := func(small, large float64) func(time.Time) float64 {
		return func(at time.Time) float64 {
			if at.Sub(start) > 150*time.Minute {
				return large
			}

			return small
		}
	}

	for _, job := range []string{"a", "b"} {
		w.memory("shop", "web-0", "app", grows(1e9, 2e9), "job", job)
		w.add(grows(2e8, 7e8), "__name__", cacheMetric, "namespace", "shop", "pod", "web-0", "container", "app", "job", job)
	}

	w.memory("shop", "web-1", "app", constant(1e9))
	w.owned(podOwnerMetric, "shop", "pod", "web-0", "StatefulSet", "web", constant(1))
	w.owned(podOwnerMetric, "shop", "pod", "web-1", "StatefulSet", "web", constant(1))
	s := w.source(t, func(c *Config) { c.Now = func() time.Time { return today } })

	read := func(resource metrics.UsageKind) map[string][]float64 {
		out := map[string][]float64{}
		req := metrics.UsageRequest{Namespaces: []string{"shop"}, Resource: resource, Start: start, End: today.Add(-10 * time.Minute)}
		for c, err := range s.Capabilities().Usage.Usage(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}

			if c.Series.Step != time.Hour || c.Key.Workload.Name != "web" {
				t.Errorf("Usage: chunk %+v, want hourly values of web", c)
			}
			out[c.Key.Pod] = append(out[c.Key.Pod], c.Series.Values...)
		}

		return out
	}

	// Usage is small in the first two and a half hours. The unfinished last hour has no value.
	if diff := cmp.Diff(map[string][]float64{"web-0": {8e8, 8e8, 1.3e9, 1.3e9, 1.3e9}}, read(metrics.UnreclaimableMemory)); diff != "" {
		t.Errorf("unreclaimable memory differs (-want +got):\n%s", diff)
	}

	before := s.Stats().Queries
	if got := read(metrics.AnonymousMemory); len(got) != 0 || s.Stats().Queries-before > 1 {
		t.Errorf("anonymous memory %v after %d queries, want none after at most 1", got, s.Stats().Queries-before)
	}
}

// TestUnreclaimableMemoryAfterARestart checks that the empty page cache of a restarted container does not remove the discount of its
// predecessor, which has another id.
func TestUnreclaimableMemoryAfterARestart(t *testing.T) {
	start := today.Add(-3 * time.Hour)
	restart := start.Add(90 * time.Minute)
	w := newFixture(start, today)

	labels := func(id string) []string { return []string{"id", id, "instance", "node-1:10250"} }
	for id, lives := range map[string]func(at time.Time) bool{
		"a": func(at time.Time) bool { return at.Before(restart) },
		"b": func(at time.Time) bool { return !at.Before(restart) },
	} {
		while := func(value func(at time.Time) float64) func(time.Time) float64 {
			return func(at time.Time) float64 {
				if !lives(at) {
					return math.NaN()
				}

				return value(at)
			}
		}

		// The cache of the new container fills within twenty minutes.
		cache := func(at time.Time) float64 {
			if id == "b" {
				return min(1e9, 5e7*at.Sub(restart).Minutes())
			}

			return 1e9
		}

		w.memory("shop", "web-0", "app", while(func(at time.Time) float64 { return 1e9 + cache(at) }), labels(id)...)
		w.add(while(cache), append([]string{"__name__", cacheMetric, "namespace", "shop", "pod", "web-0", "container", "app"}, labels(id)...)...)
	}

	w.owned(podOwnerMetric, "shop", "pod", "web-0", "StatefulSet", "web", constant(1))
	s := w.source(t, func(c *Config) { c.Now = func() time.Time { return today } })
	req := metrics.UsageRequest{Namespaces: []string{"shop"}, Resource: metrics.UnreclaimableMemory, Start: start, End: today}
	for c, err := range s.Capabilities().Usage.Usage(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}

		for i, v := range c.Series.Values { // A window of a minute has at most one minute of growth.
			if v < 1e9 || v > 1.05e9 {
				t.Errorf("hour %d: %g, want 1e9 to 1.05e9", i, v)
			}
		}

		if len(c.Series.Values) != 3 {
			t.Errorf("%d values, want 3", len(c.Series.Values))
		}
	}
}

// TestUnreclaimableMemoryWhileTheCacheChanges checks that a cache which fills between two scrapes, as of a database that reads its files, or
// is dropped, does not count as memory in need.
func TestUnreclaimableMemoryWhileTheCacheChanges(t *testing.T) {
	start := today.Add(-3 * time.Hour)
	w := newFixture(start, today)
	w.grid.Step = 15 * time.Second
	cache := func(at time.Time) float64 {
		if since := at.Sub(start); since < 50*time.Minute+30*time.Second || since > 80*time.Minute+30*time.Second {
			return 1.5e9
		}

		return 2e7
	}

	w.memory("shop", "web-0", "app", func(at time.Time) float64 { return 2e8 + cache(at) })
	w.add(cache, "__name__", cacheMetric, "namespace", "shop", "pod", "web-0", "container", "app")
	w.owned(podOwnerMetric, "shop", "pod", "web-0", "StatefulSet", "web", constant(1))

	s := w.source(t, func(c *Config) { c.Now = func() time.Time { return today } })
	req := metrics.UsageRequest{Namespaces: []string{"shop"}, Resource: metrics.UnreclaimableMemory, Start: start, End: today}
	values := 0
	for c, err := range s.Capabilities().Usage.Usage(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}

		for i, v := range c.Series.Values {
			values++

			if v != 2e8 {
				t.Errorf("hour %d: %g, want 2e8", i, v)
			}
		}
	}

	if values != 3 {
		t.Errorf("%d values, want 3", values)
	}
}

func TestHeaps(t *testing.T) {
	start := today.Add(-2 * time.Hour)
	w := newFixture(start, today)
	heap := func(metric, pod, container string, value func(time.Time) float64, more ...string) {
		w.add(value, append([]string{"__name__", metric, "namespace", "shop", "pod", pod, "container", container, "instance", pod}, more...)...)
	}
	heap(heapMaxMetric, "web-0", "app", constant(6e8), "area", "heap", "id", "G1 Old Gen")
	heap(heapMaxMetric, "web-0", "app", constant(-1), "area", "heap", "id", "G1 Eden Space")
	heap(heapMaxMetric, "web-0", "app", constant(9e9), "area", "nonheap", "id", "Metaspace")

	heap(heapLiveMetric, "web-0", "app", func(at time.Time) float64 {
		if at.Sub(start) < 30*time.Minute {
			return 4e8
		}

		return 1e8
	})

	heap(heapLiveMetric, "web-1", "", constant(5e8))
	w.owned(podOwnerMetric, "shop", "pod", "web-0", "StatefulSet", "web", constant(1))

	s := w.source(t, func(c *Config) { c.Now = func() time.Time { return today } })
	for _, namespaces := range [][]string{nil, {"shop"}, {"bank"}} {
		var got []metrics.Heap
		for h, err := range s.Capabilities().Heaps.Heaps(t.Context(), metrics.Window{Start: start, End: today}, namespaces) {
			if err != nil {
				t.Fatal(err)
			}

			got = append(got, h)
		}

		var want []metrics.Heap
		if len(namespaces) == 0 || namespaces[0] == "shop" {
			want = []metrics.Heap{{
				Key: metrics.ContainerKey{Workload: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web"}, Pod: "web-0", Container: "app"},
				Max: 6e8, Live: 4e8,
			}}
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Heaps of namespaces %v differ (-want +got):\n%s", namespaces, diff)
		}
	}
}
