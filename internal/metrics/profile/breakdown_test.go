// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// agents is a DaemonSet with one pod on each of four nodes, two of which are large and have a page cache, and a cron
// job.
func agents(grid promserver.Grid, cache string) []promserver.Series {
	var all []promserver.Series
	always := func(v float64) func(*rand.Rand, float64) float64 {
		return func(*rand.Rand, float64) float64 { return v }
	}
	for i := range 4 {
		pod := fmt.Sprintf("agent-aaaa%c", 'b'+i)
		node := fmt.Sprintf("node-%d", i)
		own := []string{"namespace", "ops", "pod", pod}
		app := append(slices.Clone(own), "container", "agent")
		with := func(metric string, pairs ...string) []string { return append([]string{"__name__", metric}, pairs...) }
		memory := 1e8 * float64(1+9*(i/2))

		all = append(all,
			randomSeries(grid, 0, grid.Len(), func(r *rand.Rand, last float64) float64 { return last + 60*0.1*float64(1+9*(i/2))*r.Float64() },
				with("container_cpu_usage_seconds_total", append(app, "cpu", "total")...)...),
			randomSeries(grid, 0, grid.Len(), always(memory), with("container_memory_working_set_bytes", app...)...),
			randomSeries(grid, 0, grid.Len(), always(1), with("kube_pod_owner", append(own, "owner_kind", "DaemonSet", "owner_name", "agent", "owner_is_controller", "true")...)...),
			randomSeries(grid, 0, grid.Len(), always(1), with("kube_pod_info", append(own, "node", node, "created_by_kind", "DaemonSet", "created_by_name", "agent")...)...))

		if cache == "" {
			continue
		}

		level := memory * 0.4
		if cache == "container_memory_total_active_file_bytes" {
			level = memory * 0.6
		}

		all = append(all, randomSeries(grid, 0, grid.Len(), always(level), with(cache, app...)...))
	}

	return all
}

func agentSet() []workload.Workload {
	return []workload.Workload{{
		Ref:        workload.Ref{Namespace: "ops", APIVersion: "apps/v1", Kind: daemonSet, Name: "agent"},
		Containers: []workload.Container{{Name: "agent", Role: workload.App}},
	}}
}

// nodesOf groups the nodes of agents into small and large ones.
func nodesOf() rightsize.NodeGroups {
	var nodes []rightsize.NodeShape
	for i := range 4 {
		nodes = append(nodes, rightsize.NodeShape{Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{"crane.io/nodepool": []string{"small", "large"}[i/2]}})
	}

	return rightsize.GroupNodes(nodes)
}

// TestDetailsAgainstTheRealEngine checks that page cache and node groups are the same with and without the cache.
func TestDetailsAgainstTheRealEngine(t *testing.T) {
	now := time.Date(2026, 3, 10, 15, 30, 0, 0, time.UTC)
	grid := promserver.Grid{Start: now.Add(-9 * 24 * time.Hour), End: now, Step: time.Minute}
	for name, c := range map[string]struct {
		metric string
		basis  rightsize.ReclaimBasis
		held   float64
	}{
		"active file": {"container_memory_total_active_file_bytes", rightsize.WithoutActiveFile, 4e8},
		"rss alone":   {"container_memory_rss", rightsize.AnonymousOnly, 4e8},
		"neither":     {"", rightsize.BasisUnknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := promserver.WriteBlocks(t.Context(), dir, grid, agents(grid, c.metric)); err != nil {
				t.Fatal(err)
			}

			server, err := promserver.Open(promserver.Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()

			d := newFixture(t)
			d.now = now
			read := func(cache *Cache, groups rightsize.NodeGroups) (*Usage, int64) {
				cfg := prometheus.DefaultConfig()
				cfg.Address = server.URL()

				cfg.Now = func() time.Time { return now }
				source, err := prometheus.New(cfg)
				if err != nil {
					t.Fatal(err)
				}

				u, err := Collect(t.Context(), Source{Capabilities: source.Capabilities(), Cache: cache}, Request{Workloads: agentSet(), End: now, Length: 8 * 24 * time.Hour, NodeGroups: groups.Of})
				if err != nil {
					t.Fatal(err)
				}

				u.SetConstraints(workload.Constraints{Nodes: groups})
				return u, source.Stats().Queries
			}

			groups := nodesOf()
			plain, _ := read(nil, groups)

			cold, first := read(d.cache, groups)
			warm, second := read(d.cache, groups)
			ungrouped, third := read(d.cache, rightsize.NodeGroups{})
			if second >= first || third > second {
				t.Errorf("%d queries cold, %d warm, %d warm without groups, want fewer warm than cold and no more without groups", first, second, third)
			}

			key := container{identity: identityOf(agentSet()[0].Ref), name: "agent"}
			for _, u := range []*Usage{cold, warm} {
				if !bytes.Equal(marshalProfile(t, plain.profiles[key]), marshalProfile(t, u.profiles[key])) {
					t.Error("profiles differ with and without the cache, want the same")
				}
			}

			for i, day := range ungrouped.profiles[key].Days() {
				if want := plain.profiles[key].Days()[i]; day.CPU.Total() != want.CPU.Total() || day.Memory.Max() != want.Memory.Max() {
					t.Errorf("day %v differs without node groups, want the same CPU and memory", day.Day)
				}
			}

			if len(warm.grouped) != 2 || len(ungrouped.grouped) != 0 && len(ungrouped.ResourceInput(agentSet()[0], rightsize.Policy{}, now).Containers[0].Groups) != 0 {
				t.Errorf("%d groups with node groups and %d without, want 2, and none in the input without", len(warm.grouped), len(ungrouped.grouped))
			}

			for k, p := range plain.grouped {
				if !bytes.Equal(marshalProfile(t, p), marshalProfile(t, warm.grouped[k])) {
					t.Errorf("profile of %v differs with and without the cache, want the same", k)
				}
			}

			checkDetails(t, warm, c.basis, c.held, now)
		})
	}
}

func checkDetails(t *testing.T, u *Usage, basis rightsize.ReclaimBasis, held float64, now time.Time) {
	t.Helper()

	whole := u.Profile(agentSet()[0].Ref, "agent").Days()
	for _, day := range whole {
		if day.ReclaimBasis != basis {
			t.Fatalf("%v: basis %d, want %d", day.Day, day.ReclaimBasis, basis)
		}
	}

	most := 0.0
	for _, p := range whole[1].Peaks {
		most = math.Max(most, float64(p.Unreclaimable))
	}

	if math.Abs(most-held) > 1e3 {
		t.Errorf("held %v, want %v", most, held)
	}

	policy, err := rightsize.PolicyByName(rightsize.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}

	in := u.ResourceInput(agentSet()[0], policy, now).Containers[0]
	r := rightsize.Recommend(rightsize.Input{Profile: in.Profile, Groups: in.Groups, Now: now}, policy)
	if len(r.NodeGroups) != 2 || r.NodeGroups[0].Group != "crane.io/nodepool=large" || r.NodeGroups[0].Pods != 2 {
		t.Fatalf("Recommend: node groups %+v, want 2, the first of the large pool with 2 pods", r.NodeGroups)
	}

	large := *r.NodeGroups[0].Target.MemoryRequest
	small := *r.NodeGroups[1].Target.MemoryRequest
	if large < 4*small || *r.Target.MemoryRequest < large {
		t.Errorf("memory requests: large pool %d, small pool %d, all %d, want large at least 4 times small and all at least large", large, small, *r.Target.MemoryRequest)
	}
	if lowered := r.Memory.Estimate < 9e8; lowered != (basis == rightsize.WithoutActiveFile) {
		t.Errorf("basis %d: memory estimate %v, want below 9e8 only with active files left out", basis, r.Memory.Estimate)
	}
}

// breakdownCluster is a source with data of the second resource of its memory breakdown.
type breakdownCluster struct {
	cluster
	details []metrics.UsageKind
}

func (c *breakdownCluster) capabilities() metrics.Capabilities {
	return metrics.Capabilities{
		Usage: c, Days: c, MemoryBreakdown: []metrics.UsageKind{metrics.UnreclaimableMemory, metrics.AnonymousMemory},
	}
}

func (c *breakdownCluster) Usage(ctx context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	if req.Resource.IsHourly() {
		c.details = append(c.details, req.Resource)
	}

	if req.Resource == metrics.UnreclaimableMemory {
		return func(func(metrics.Chunk, error) bool) {}
	}

	return c.cluster.Usage(ctx, req)
}

// TestDetailsAreAskedForInOrder checks that a less precise metric is read only if the more precise one is missing,
// and that neither is read for cached days.
func TestDetailsAreAskedForInOrder(t *testing.T) {
	d := newFixture(t)
	c := &breakdownCluster{cluster: cluster{name: "a", step: 30 * time.Minute}}
	for range 2 {
		if _, err := Collect(t.Context(), Source{Capabilities: c.capabilities(), Cache: d.cache}, Request{Workloads: deployments("shop/w0"), End: d.now, Length: 5 * 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
	}

	want := []metrics.UsageKind{metrics.UnreclaimableMemory, metrics.AnonymousMemory, metrics.UnreclaimableMemory, metrics.AnonymousMemory}
	if !slices.Equal(c.details, want) {
		t.Errorf("requested memory details %v, want %v", c.details, want)
	}

	for _, r := range c.asked[len(c.asked)-3:] {
		if days := r.End.Sub(r.Start); days > 24*time.Hour {
			t.Errorf("%s was requested for %v, want at most a day: finished days are cached", r.Resource, days)
		}
	}
}

// rollout is a source in which a pod with a long startup replaces another at noon.
type rollout struct{ cluster }

func (c *rollout) Usage(_ context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	day := series.DayOf(req.Start)
	return func(yield func(metrics.Chunk, error) bool) {
		for _, p := range []struct {
			pod    string
			from   int
			values []float64
		}{
			{"old", 0, []float64{0.1, 0.1}},
			{"old", 6, []float64{0.2, 0.1}}, // The second half of a day that is read in two.
			{"new", 12, []float64{5, 0.1, 0.1}},
			{"new", 18, []float64{0.3}},
		} {
			start := day.Start().Add(time.Duration(p.from) * time.Hour)
			if !yield(metrics.Chunk{
				Key:    key("shop", "Deployment", "w0", p.pod, "app"),
				Series: series.Series{Start: start, Step: 5 * time.Minute, Values: p.values},
			}, nil) {
				return
			}
		}
	}
}

// TestStartsAreKeptApart checks that the first usage of a pod that appears within a day counts as startup and not as
// steady usage.
func TestStartsAreKeptApart(t *testing.T) {
	end := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	u, err := Collect(t.Context(), Source{Capabilities: metrics.Capabilities{Usage: &rollout{}, Days: &rollout{}}}, Request{Workloads: deployments("shop/w0"), End: end, Length: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}

	d := u.Profile(deployments("shop/w0")[0].Ref, "app").Days()[0]
	if d.StartCPU != 5 || d.CPU.Total() != 7 || d.CPU.Max() > 0.31 {
		t.Errorf("start CPU %v, %d steady samples up to %v, want 5, 7 and at most 0.31", d.StartCPU, d.CPU.Total(), d.CPU.Max())
	}
}
