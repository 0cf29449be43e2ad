// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clustercost

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

const gib = 1 << 30

// fixture is a cluster and its history, as they are at the moment.
type fixture struct {
	mu              sync.Mutex
	cluster         workload.Cluster
	use             map[string]float64 // by pod: cores, and GiB
	clusterErr, err error
	listed          int
}

func (w *fixture) set(change func(*fixture)) {
	w.mu.Lock()
	defer w.mu.Unlock()

	change(w)
}

func (w *fixture) Cluster(context.Context, []string) (workload.Cluster, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.listed++
	return w.cluster, w.clusterErr
}

func (w *fixture) Usage(_ context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		w.mu.Lock()
		defer w.mu.Unlock()

		for pod, v := range w.use {
			if req.Resource == metrics.Memory {
				v *= gib
			}

			chunk := metrics.Chunk{
				Key:    metrics.ContainerKey{Workload: workload.Ref{Namespace: "shop", Kind: "Deployment", Name: "web"}, Pod: pod, Container: "app"},
				Series: series.Series{Start: req.Start, Step: time.Minute, Values: []float64{v / 2, math.NaN(), v * 3 / 2}},
			}
			if !yield(chunk, nil) {
				return
			}
		}

		if w.err != nil {
			yield(metrics.Chunk{}, w.err)
		}
	}
}

// fakeLimits has a CPU limit of each container of the pod web-1.
type fakeLimits struct {
	cores float64
	err   error
}

func (l fakeLimits) Capacities(context.Context, metrics.Window, []string) (*metrics.Capacities, error) {
	out := metrics.NewCapacities()
	out.AddLimit("shop", "web-1", "app", metrics.CPU, time.Unix(0, 0), time.Unix(1<<33, 0), l.cores)
	return out, l.err
}

// TestCapacityReader checks that a sample above the limit of its container does not count, and that nodes bound samples without limits.
func TestCapacityReader(t *testing.T) {
	key := metrics.ContainerKey{Workload: workload.Ref{Namespace: "shop"}, Pod: "web-1", Container: "app", Node: "a"}
	nodes := newFixture().cluster.Nodes
	for name, c := range map[string]struct {
		source metrics.CapacityReader
		want   float64
	}{
		"no source":           {nil, 4.04},
		"a limit":             {fakeLimits{cores: 0.2}, 0.22},
		"a limit above nodes": {fakeLimits{cores: 64}, 4.04},
		"a failing source":    {fakeLimits{cores: 0.2, err: errors.New("down")}, 4.04},
		"no such source":      {fakeLimits{err: metrics.ErrUnsupported}, 4.04},
	} {
		got, err := capacityReader{nodes: nodes, source: c.source}.Capacities(t.Context(), metrics.Window{}, nil)
		if err != nil {
			t.Fatalf("%s: Capacities: %v, want no error", name, err)
		}

		if most := got.Most(key, metrics.CPU, time.Unix(1e9, 0)); math.Abs(most-c.want) > 1e-9 {
			t.Errorf("%s: Most = %v, want %v", name, most, c.want)
		}
	}
}

func pod(owner, name, node string, cpu units.MilliCPU, memory units.Bytes) workload.Pod {
	return workload.Pod{
		Name: name, Node: node, Owner: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: owner},
		Requests: cost.Amounts{CPU: cpu, Memory: memory},
	}
}

func newFixture() *fixture {
	return &fixture{
		cluster: workload.Cluster{
			Nodes: []cost.Node{{Name: "a", Size: cost.Amounts{CPU: 4000, Memory: 8 * gib}}},
			Pods:  []workload.Pod{pod("web", "web-1", "a", 1000, 2*gib), pod("db", "db-1", "a", 500, gib)},
		},
		use: map[string]float64{"web-1": 0.5},
	}
}

func newLedger(t *testing.T, w *fixture, c clock.WithTicker) *Ledger {
	t.Helper()

	book, err := cost.ParsePriceBook([]byte(`{"currency":"USD","source":"s","date":"2026-01-01","default":{"prices":{"cpu":1,"memory":0.5}}}`))
	if err != nil {
		t.Fatal(err)
	}

	l, err := New(Config{PriceBook: book, Cluster: w, Usage: w, Interval: time.Minute, Clock: c})
	if err != nil {
		t.Fatal(err)
	}

	return l
}

func check(t *testing.T, l *Ledger, want string, names ...string) {
	t.Helper()

	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(l); err != nil {
		t.Fatal(err)
	}

	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Errorf("metrics differ from what is wanted: %v", err)
	}
}

const (
	workloadHead = `# HELP crane_cost_workload_hourly Hourly share of a workload in the cost of the nodes, in the currency, by the request of its pods, their usage, or the larger of both.
# TYPE crane_cost_workload_hourly gauge
`
	idleHead = `# HELP crane_cost_idle_hourly Hourly cost of the nodes that is allocated to no workload, in the currency.
# TYPE crane_cost_idle_hourly gauge
`
	failuresHead = `# HELP crane_cost_read_failures_total Refreshes of the costs that failed, in part or as a whole.
# TYPE crane_cost_read_failures_total counter
`
)

func TestLedger(t *testing.T) {
	w := newFixture()
	c := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	l := newLedger(t, w, c)
	check(t, l, failuresHead+"crane_cost_read_failures_total 0\n")

	l.refresh(t.Context())
	check(t, l, workloadHead+`crane_cost_workload_hourly{basis="max",currency="USD",namespace="shop",owner_kind="Deployment",owner_name="db"} 1
crane_cost_workload_hourly{basis="max",currency="USD",namespace="shop",owner_kind="Deployment",owner_name="web"} 2
crane_cost_workload_hourly{basis="request",currency="USD",namespace="shop",owner_kind="Deployment",owner_name="db"} 1
crane_cost_workload_hourly{basis="request",currency="USD",namespace="shop",owner_kind="Deployment",owner_name="web"} 2
crane_cost_workload_hourly{basis="use",currency="USD",namespace="shop",owner_kind="Deployment",owner_name="db"} 0
crane_cost_workload_hourly{basis="use",currency="USD",namespace="shop",owner_kind="Deployment",owner_name="web"} 0.75
`+idleHead+`crane_cost_idle_hourly{basis="max",currency="USD",resource="cpu"} 2.5
crane_cost_idle_hourly{basis="max",currency="USD",resource="memory"} 2.5
crane_cost_idle_hourly{basis="request",currency="USD",resource="cpu"} 2.5
crane_cost_idle_hourly{basis="request",currency="USD",resource="memory"} 2.5
crane_cost_idle_hourly{basis="use",currency="USD",resource="cpu"} 3.5
crane_cost_idle_hourly{basis="use",currency="USD",resource="memory"} 3.75
`, "crane_cost_workload_hourly", "crane_cost_idle_hourly")

	check(t, l, `# HELP node_cpu_hourly_cost Hourly cost of one CPU of a node, in the currency; the name and unit of OpenCost and gocrane.
# TYPE node_cpu_hourly_cost gauge
node_cpu_hourly_cost{currency="USD",node="a"} 1
# HELP node_ram_hourly_cost Hourly cost of one GiB of memory of a node, in the currency; the name and unit of OpenCost and gocrane.
# TYPE node_ram_hourly_cost gauge
node_ram_hourly_cost{currency="USD",node="a"} 0.5
# HELP node_total_hourly_cost Hourly cost of a node, in the currency; the name and unit of OpenCost and gocrane.
# TYPE node_total_hourly_cost gauge
node_total_hourly_cost{currency="USD",node="a"} 8
`, "node_cpu_hourly_cost", "node_ram_hourly_cost", "node_total_hourly_cost")

	// A workload that is gone takes its series along; without use only the requests are known.
	w.set(func(w *fixture) {
		w.cluster.Pods = w.cluster.Pods[:1]
		w.err = errors.New("no Prometheus")
	})
	l.refresh(t.Context())
	check(t, l, workloadHead+`crane_cost_workload_hourly{basis="request",currency="USD",namespace="shop",owner_kind="Deployment",owner_name="web"} 2
`+failuresHead+"crane_cost_read_failures_total 1\n", "crane_cost_workload_hourly", "crane_cost_read_failures_total")

	// A cluster that cannot be listed leaves the last figures, and after a while none.
	w.set(func(w *fixture) { w.clusterErr = errors.New("forbidden") })
	l.refresh(t.Context())
	check(t, l, workloadHead+`crane_cost_workload_hourly{basis="request",currency="USD",namespace="shop",owner_kind="Deployment",owner_name="web"} 2
`, "crane_cost_workload_hourly")
	c.Step(staleIntervals*time.Minute + time.Second)
	check(t, l, failuresHead+"crane_cost_read_failures_total 2\n")
}

func TestPrices(t *testing.T) {
	w := newFixture()
	c := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	l := newLedger(t, w, c)
	w.set(func(w *fixture) { w.clusterErr = errors.New("forbidden") })

	if _, _, err := l.Prices(t.Context()); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("Prices of a cluster that cannot be read: error %v, want forbidden", err)
	}

	w.set(func(w *fixture) { w.clusterErr = nil })
	for range 3 { // The second and third are the first.
		tariff, placed, err := l.Prices(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		ref := workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
		if p := tariff.At(placed.PodsByNode(ref)); p.From != cost.FromNodes || p.CPU != 1 {
			t.Errorf("price %+v, want 1 for a core, from the nodes", p)
		}
	}

	if w.listed != 2 {
		t.Errorf("nodes were listed %d times, want 2", w.listed)
	}

	c.Step(2 * time.Minute)
	w.set(func(w *fixture) { w.clusterErr = errors.New("timeout") })

	if tariff, _, err := l.Prices(t.Context()); err != nil || tariff == nil {
		t.Errorf("Prices after a failure = %v, error %v, want the last prices", tariff, err)
	}
	check(t, l, failuresHead+"crane_cost_read_failures_total 0\n") // Prices alone are no costs.
}

// TestStart: the books are renewed at each interval, and the end of the context ends it.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		l := newLedger(t, w, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Start(ctx) }()
		time.Sleep(150 * time.Second) // Of the bubble's clock.
		synctest.Wait()
		cancel()

		if err := <-done; err != nil {
			t.Errorf("Start returned error %v, want none", err)
		}
		if w.listed != 3 {
			t.Errorf("nodes were listed %d times in two and a half intervals, want 3", w.listed)
		}
	})
}

// TestCardinality: however many workloads and namespaces there are, the number of series is bounded and the sums stay.
func TestCardinality(t *testing.T) {
	w := &fixture{}
	c := clocktesting.NewFakeClock(time.Now())

	w.cluster.Nodes = []cost.Node{{Name: "a", Size: cost.Amounts{CPU: 1 << 30, Memory: 1 << 45}}}
	for ns := range 1500 {
		for i := range 3 {
			p := pod(fmt.Sprintf("w%d", i), fmt.Sprintf("w%d-1", i), "a", 10, gib)
			p.Owner.Namespace = fmt.Sprintf("ns%d", ns)
			w.cluster.Pods = append(w.cluster.Pods, p)
		}
	}

	l := newLedger(t, w, c)
	l.cfg.Usage = nil
	l.cfg.PriceBook.Default.Rates.CPU = 0.001
	l.refresh(t.Context())

	sum := func(name string) (series int, total float64) {
		registry := prometheus.NewPedanticRegistry()
		if err := registry.Register(l); err != nil {
			t.Fatal(err)
		}

		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range families {
			if f.GetName() == name {
				for _, m := range f.GetMetric() {
					series++
					total += m.GetGauge().GetValue()
				}
			}
		}

		return series, total
	}

	want := l.last.allocation.Used.Cost.Request.Total().PerHour()
	if n, total := sum("crane_cost_workload_hourly"); n > maxSeriesOwners+maxSeriesNamespaces+1 || math.Abs(total-want) > 1e-6 {
		t.Errorf("%d series of workloads, in sum %v, want %v", n, total, want)
	}
	if n, total := sum("crane_cost_namespace_hourly"); n != maxSeriesNamespaces+1 || math.Abs(total-want) > 1e-6 {
		t.Errorf("%d series of namespaces, in sum %v, want %v", n, total, want)
	}
}

func TestNew_InvalidConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("New of an empty configuration returned no error, want one")
	}
}
