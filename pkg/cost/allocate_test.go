// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/pkg/units"
)

const plain = `{"currency":"USD","source":"s","date":"2026-01-01","default":{"prices":{"cpu":1,"memory":0.5,"gpu":2}}}`

func mustTariff(t testing.TB, b *PriceBook, nodes []Node) *Tariff {
	t.Helper()

	tariff, err := NewTariff(b, nodes)
	if err != nil {
		t.Fatal(err)
	}

	return tariff
}

func used(cpu units.MilliCPU, memory units.Bytes) *Amounts {
	return &Amounts{CPU: cpu, Memory: memory}
}

// TestAllocate is the worked example of docs/explanation/cost-allocation.md.
func TestAllocate(t *testing.T) {
	tariff := mustTariff(t, mustParse(t, plain), []Node{
		{Name: "a", Size: Amounts{CPU: 4000, Memory: 8 * oneGiB}}, {Name: "b", Size: Amounts{CPU: 2000, Memory: 4 * oneGiB}},
	})

	web := Workload{"shop", "Deployment", "web"}
	sum := Workload{"batch", "Job", "sum"}
	got := Allocate(tariff, []Pod{
		{Workload: web, Node: "a", Request: Amounts{CPU: 2000, Memory: 2 * oneGiB}, Usage: used(500, oneGiB)},
		{Workload: sum, Node: "a", Request: Amounts{CPU: 1000, Memory: 4 * oneGiB}, Usage: used(3000, 2*oneGiB)},
		{Workload: web, Node: "b", Request: Amounts{CPU: 1000, Memory: oneGiB}},
		{Workload: web, Node: "gone", Request: Amounts{CPU: 1000}},
		{Workload: web},
	})

	if !near(got.Cluster.Total().PerHour(), 8+4) || got.OnUnknownNode != 1 || got.Pending != 1 || len(got.Workloads) != 2 || len(got.Namespaces) != 2 {
		t.Fatalf("Allocate = %+v, want a cost of 12, one pending pod, one on an unknown node, 2 workloads in 2 namespaces", got)
	}

	w := got.Workloads[slices.IndexFunc(got.Workloads, func(w WorkloadCost) bool { return w.Workload == web })]
	if w.Pods != 2 || w.WithoutUsage != 1 ||
		!near(w.Cost.Request.Total().PerHour(), 2+1+1+0.5) || !near(w.Cost.Usage.Total().PerHour(), 0.5+0.5) {
		t.Errorf("bill of %s = %+v, want 2 pods, 1 without usage, 4.5 by request and 1 by usage", web, w)
	}
	// By max the two pods of node a hold 5 of 4 cores: they share them 2 to 3.
	if !near(w.Cost.Max.CPU.PerHour(), 4*2.0/5+1) || !near(w.Cost.Max.Memory.PerHour(), 1+0.5) {
		t.Errorf("cost by max = %+v, want 2.6 for CPU and 1.5 for memory", w.Cost.Max)
	}

	if !near(got.Idle.Request.Total().PerHour(), 12-4.5-3) || !near(got.Idle.Usage.Total().PerHour(), 12-1-4) || got.Nodes[0].Idle.Max.CPU != 0 {
		t.Errorf("Idle = %+v, want 4.5 by request, 7 by usage and no CPU of node a by max", got.Idle)
	}
}

func TestAllocate_GPUs(t *testing.T) {
	tariff := mustTariff(t, mustParse(t, plain), []Node{{Name: "a", Size: Amounts{CPU: 4000, Memory: 8 * oneGiB, GPU: 4}}})
	got := Allocate(tariff, []Pod{{Workload: Workload{"ml", "Job", "train"}, Node: "a", Request: Amounts{GPU: 3}, Usage: used(0, 0)}})
	for name, s := range map[string]Split{"request": got.Used.Cost.Request, "use": got.Used.Cost.Usage, "max": got.Used.Cost.Max} {
		if !near(s.GPU.PerHour(), 6) {
			t.Errorf("GPU cost by %s = %v, want 6", name, s.GPU.PerHour())
		}
	}
}

// TestAllocate_AddsUp checks, for each measure and resource, that the costs of workloads (or namespaces) and the idle cost add up to the
// cost of the nodes within 1e-9, that no cost is negative, and that the measure max costs a workload at least as much as the larger of the
// other two where the node has enough capacity.
func TestAllocate_AddsUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := mustParse(t, book)
	for round := range 500 {
		var nodes []Node
		var pods []Pod
		for n := range 1 + rng.IntN(5) {
			node := Node{Name: string(rune('a' + n)), Size: Amounts{
				CPU: units.MilliCPU(rng.IntN(8000)), Memory: units.Bytes(rng.Int64N(32 * oneGiB)), GPU: rng.Int64N(3),
			}}

			if rng.IntN(2) == 0 {
				node.Labels = map[string]string{"pool": "big", "zone": string(rune('a' + rng.IntN(3)))}
			}

			nodes = append(nodes, node)
			for range rng.IntN(8) {
				p := Pod{
					Workload: Workload{fmt.Sprint(rng.IntN(2)), "Deployment", string(rune('a' + rng.IntN(4)))}, Node: node.Name,
					Request: Amounts{CPU: units.MilliCPU(rng.IntN(4000) - 200), Memory: units.Bytes(rng.Int64N(16*oneGiB)) - oneGiB, GPU: rng.Int64N(2)},
				}

				if rng.IntN(4) > 0 {
					p.Usage = used(units.MilliCPU(rng.IntN(4000)-200), units.Bytes(rng.Int64N(16*oneGiB)))
				}
				pods = append(pods, p)
			}
		}

		got := Allocate(mustTariff(t, b, nodes), pods)
		byWorkload, byNamespace := got.Idle, got.Idle
		for _, w := range got.Workloads {
			byWorkload = byWorkload.Plus(w.Cost)
			for _, s := range []Split{w.Cost.Request, w.Cost.Usage, w.Cost.Max} {
				if s.CPU < 0 || s.Memory < 0 || s.GPU < 0 {
					t.Fatalf("round %d: bill %+v, want no negative amount", round, w)
				}
			}
		}

		for _, ns := range got.Namespaces {
			byNamespace = byNamespace.Plus(ns.Cost)
		}

		whole := Shares{Request: got.Cluster, Usage: got.Cluster, Max: got.Cluster}
		if byWorkload != whole || byNamespace != whole || got.Idle.Plus(got.Used.Cost) != whole {
			t.Fatalf("round %d: workloads and idle add up to %+v, namespaces and idle to %+v, want %+v", round, byWorkload, byNamespace, whole)
		}
	}
}

// TestAllocate_Monotone checks that a larger request never reduces the charge.
func TestAllocate_Monotone(t *testing.T) {
	tariff := mustTariff(t, mustParse(t, plain), []Node{{Name: "a", Size: Amounts{CPU: 4000, Memory: 8 * oneGiB}}})
	before := Nanos(-1)
	for cpu := units.MilliCPU(0); cpu <= 8000; cpu += 37 {
		got := Allocate(tariff, []Pod{
			{Workload: Workload{Name: "a"}, Node: "a", Request: Amounts{CPU: cpu}},
			{Workload: Workload{Name: "b"}, Node: "a", Request: Amounts{CPU: 1500}},
		})

		i := slices.IndexFunc(got.Workloads, func(w WorkloadCost) bool { return w.Name == "a" })
		if now := got.Workloads[i].Cost.Request.CPU; now < before {
			t.Fatalf("a request of %d millicores costs %d, want at least the %d of a smaller one", cpu, now, before)
		} else {
			before = now
		}
	}
}

func TestTariffAt(t *testing.T) {
	b := mustParse(t, book)
	nodes := []Node{
		{Name: "dear", Size: Amounts{CPU: 4000, Memory: 16 * oneGiB}},
		{Name: "cheap", Labels: map[string]string{"pool": "big"}, Size: Amounts{CPU: 12000, Memory: 16 * oneGiB}},
		{Name: "empty"},
	}

	tariff := mustTariff(t, b, nodes)
	for name, c := range map[string]struct {
		pods   map[string]int
		cpu    float64
		from   PricedFrom
		groups string
	}{
		"one node":  {map[string]int{"dear": 3}, 0.03, FromNodes, "default"},
		"two nodes": {map[string]int{"dear": 3, "cheap": 1}, (3*0.03 + 0.01) / 4, FromNodes, "default parts"},
		"one gone":  {map[string]int{"cheap": 1, "gone": 9}, 0.01, FromNodes, "parts"},
		"all gone":  {map[string]int{"gone": 9}, (4*0.03 + 12*0.01) / 16, FromClusterMean, "default parts"},
		"no pods":   {nil, (4*0.03 + 12*0.01) / 16, FromClusterMean, "default parts"},
		"no size":   {map[string]int{"empty": 2}, (4*0.03 + 12*0.01) / 16, FromClusterMean, "default parts"},
	} {
		p := tariff.At(c.pods)
		if !near(float64(p.CPU), c.cpu) || p.From != c.from || !strings.HasPrefix(strings.Join(p.Groups, " "), c.groups) {
			t.Errorf("%s: At = %+v, want CPU at %v from %s, groups %s", name, p, c.cpu, c.from, c.groups)
		}
	}

	if p := mustTariff(t, b, nil).At(nil); p.CPU != 0.03 || p.Memory != 0.005 || p.From != FromPriceBook {
		t.Errorf("At without nodes = %+v, want the default of the price book", p)
	}

	rich := Node{Size: Amounts{CPU: 1 << 30, Memory: 1}}
	b.Default.Rates.CPU = 0.9

	many := make([]Node, 10_000)
	for i := range many {
		many[i] = rich
		many[i].Name = fmt.Sprint(i)
	}

	if _, err := NewTariff(b, many); err == nil || !strings.Contains(err.Error(), "together") {
		t.Errorf("NewTariff of a cluster beyond the maximum: %v, want an error about the sum", err)
	}
}

func ptr[T any](v T) *T { return new(v) }

func TestSavingOf(t *testing.T) {
	price := UnitPrice{CPU: 0.1, Memory: 0.01, From: FromNodes}
	less := Resize{
		Container: "app", CPUNow: ptr(units.MilliCPU(1000)), CPUNew: ptr(units.MilliCPU(400)),
		MemoryNow: ptr(units.Bytes(2 * oneGiB)), MemoryNew: ptr(units.Bytes(3 * oneGiB)),
	}

	s := SavingOf(price, 3, []Resize{less})
	if s.CPU != 1800 || s.Memory != -3*oneGiB || len(s.NotCounted) != 0 || !near(s.Hourly.Total().PerHour(), 0.18-0.03) ||
		!near(s.Hourly.Total().PerMonth(), (0.18-0.03)*730) {
		t.Errorf("SavingOf = %+v, want 1800 millicores, -3 GiB and 0.15 an hour", s)
	}

	for name, c := range map[string]struct {
		pods int32
		r    Resize
		left string
	}{
		"no pods":          {0, less, "no pods"},
		"no request":       {3, Resize{Container: "app", CPUNew: ptr(units.MilliCPU(100))}, "cpu of app: no request today"},
		"request of zero":  {3, Resize{Container: "app", CPUNow: ptr(units.MilliCPU(0)), CPUNew: ptr(units.MilliCPU(100))}, "cpu of app: no request today"},
		"no number":        {3, Resize{Container: "app", CPUNow: ptr(units.MilliCPU(100))}, "cpu of app: no number yet"},
		"below zero":       {3, Resize{Container: "app", CPUNow: ptr(units.MilliCPU(100)), CPUNew: ptr(units.MilliCPU(-1))}, "below zero"},
		"too large":        {math.MaxInt32, Resize{Container: "app", CPUNow: ptr(units.MilliCPU(math.MaxInt64)), CPUNew: ptr(units.MilliCPU(0))}, "too large"},
		"too large memory": {1, Resize{Container: "app", MemoryNow: ptr(units.Bytes(1)), MemoryNew: ptr(units.Bytes(math.MaxInt64))}, "too large"},
	} {
		s := SavingOf(price, c.pods, []Resize{c.r})
		if s.CPU != 0 || s.Memory != 0 || s.Hourly != (Split{}) || !strings.Contains(strings.Join(s.NotCounted, "; "), c.left) {
			t.Errorf("%s: SavingOf = %+v, want no saving and the reason %q", name, s, c.left)
		}
	}
}

// BenchmarkAllocate deals 1,000 nodes out to 20,000 pods of 2,000 workloads.
func BenchmarkAllocate(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 4))
	nodes := make([]Node, 1000)
	for i := range nodes {
		nodes[i] = Node{Name: fmt.Sprint("n", i), Size: Amounts{CPU: 32_000, Memory: 128 * oneGiB}}
	}

	pods := make([]Pod, 20_000)
	for i := range pods {
		w := rng.IntN(2000)
		pods[i] = Pod{
			Workload: Workload{fmt.Sprint("ns", w%50), "Deployment", fmt.Sprint("w", w)}, Node: nodes[rng.IntN(len(nodes))].Name,
			Request: Amounts{CPU: units.MilliCPU(rng.IntN(2000)), Memory: units.Bytes(rng.Int64N(8 * oneGiB))},
			Usage:   used(units.MilliCPU(rng.IntN(1000)), units.Bytes(rng.Int64N(4*oneGiB))),
		}
	}

	book := mustParse(b, plain)
	for b.Loop() {
		Allocate(mustTariff(b, book, nodes), pods)
	}
}
