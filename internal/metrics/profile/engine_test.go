// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/testbed/promserver"
)

// TestCacheAgainstTheRealEngine checks that results are identical when read at once, when read day by day into a
// cache, and when read from the cache, with short-lived pods, counter resets and missing samples.
func TestCacheAgainstTheRealEngine(t *testing.T) {
	now := time.Date(2026, 3, 10, 15, 30, 0, 0, time.UTC)
	grid := promserver.Grid{Start: now.Add(-5 * 24 * time.Hour), End: now, Step: time.Minute}
	var all []promserver.Series
	for _, ns := range []string{"bank", "shop"} {
		for w := range 2 {
			rs := fmt.Sprintf("w%d-5d4f8c7b9d", w)
			all = append(all, randomSeries(grid, 0, grid.Len(), func(*rand.Rand, float64) float64 { return 1 },
				"__name__", "kube_replicaset_owner", "namespace", ns, "replicaset", rs, "owner_kind", "Deployment",
				"owner_name", fmt.Sprintf("w%d", w), "owner_is_controller", "true"))
			for p := range 6 {
				pod := fmt.Sprintf("%s-aaaa%c", rs, 'b'+p)
				from := grid.Len() * p / 8
				to := min(grid.Len(), from+grid.Len()*3/8)

				all = append(all,
					randomSeries(grid, from, to, func(r *rand.Rand, last float64) float64 {
						if r.IntN(2000) == 0 {
							return 0
						}

						return last + 60*r.Float64()*(1+float64(w))
					}, "__name__", "container_cpu_usage_seconds_total", "namespace", ns, "pod", pod, "container", "app", "cpu", "total"),
					randomSeries(grid, from, to, func(r *rand.Rand, _ float64) float64 { return math.Round(1e9 * r.Float64()) },
						"__name__", "container_memory_working_set_bytes", "namespace", ns, "pod", pod, "container", "app"),
					randomSeries(grid, from, to, func(*rand.Rand, float64) float64 { return 1 },
						"__name__", "kube_pod_owner", "namespace", ns, "pod", pod, "owner_kind", "ReplicaSet", "owner_name", rs, "owner_is_controller", "true"))
			}
		}
	}

	dir := t.TempDir()
	if _, err := promserver.WriteBlocks(t.Context(), dir, grid, all); err != nil {
		t.Fatal(err)
	}

	server, err := promserver.Open(promserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()

	d := newFixture(t)
	d.now = now
	read := func(cache *Cache, names ...string) (*Usage, int64) {
		cfg := prometheus.DefaultConfig()
		cfg.Address = server.URL()

		cfg.Now = func() time.Time { return now }
		source, err := prometheus.New(cfg)
		if err != nil {
			t.Fatal(err)
		}

		u, err := Collect(t.Context(), Source{Capabilities: source.Capabilities(), Cache: cache}, Request{Workloads: deployments(names...), End: now, Length: 4 * 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}

		return u, source.Stats().Queries
	}

	want, _ := read(nil, "bank/w0", "bank/w1", "shop/w0", "shop/w1")
	if len(want.profiles) != 4 {
		t.Fatalf("%d containers, want 4", len(want.profiles))
	}

	_, cold := read(d.cache, "shop/w0")
	got, _ := read(d.cache, "bank/w0", "bank/w1", "shop/w0", "shop/w1")

	again, warm := read(d.cache, "bank/w0", "bank/w1", "shop/w0", "shop/w1")
	if warm >= cold {
		t.Errorf("%d queries of two namespaces with the cache, want fewer than the %d of one without", warm, cold)
	}

	for key, profile := range want.profiles {
		raw := marshalProfile(t, profile)
		if !bytes.Equal(raw, marshalProfile(t, got.profiles[key])) || !bytes.Equal(raw, marshalProfile(t, again.profiles[key])) {
			t.Errorf("profile of %v differs with and without the cache, want the same", key)
		}
	}

	if len(d.notes) > 0 {
		t.Errorf("notes %q, want none", d.notes)
	}
}

// randomSeries has samples within [from, to) of the grid, one in fifty of them missing.
func randomSeries(grid promserver.Grid, from, to int, next func(r *rand.Rand, last float64) float64, pairs ...string) promserver.Series {
	l := labels.FromStrings(pairs...)
	random := rand.New(rand.NewPCG(l.Hash(), uint64(grid.Step)))
	last := 0.0

	return promserver.Series{Labels: l, Fill: func(dst []float64, first int) {
		for i := range dst {
			dst[i] = math.NaN()
			if at := first + i; at >= from && at < to {
				last = next(random, last)

				if random.IntN(50) > 0 {
					dst[i] = last
				}
			}
		}
	}}
}
