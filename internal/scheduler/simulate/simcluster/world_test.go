// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simcluster_test

import (
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/scheduler/simulate/simcluster"
	"crane.io/crane/internal/scheduler/simulate/simscenario"
)

func steady(t *testing.T, nodes int) *simscenario.Scenario {
	t.Helper()

	s, err := simscenario.Named("steady")
	if err != nil {
		t.Fatalf("Named(steady): %v, want no error", err)
	}

	s.Nodes.Count = nodes
	return s
}

func generate(t *testing.T, s *simscenario.Scenario, seed uint64) *simcluster.World {
	t.Helper()

	w, err := simcluster.Generate(s, seed)
	if err != nil {
		t.Fatalf("Generate(%s, %d): %v, want no error", s.Name, seed, err)
	}

	return w
}

func TestWorldFollowsFromTheSeed(t *testing.T) {
	s := steady(t, 20)
	if a, b := generate(t, s, 1), generate(t, s, 1); !reflect.DeepEqual(a, b) {
		t.Error("Generate with seed 1 gives two worlds, want one")
	}
	if a, b := generate(t, s, 1), generate(t, s, 2); reflect.DeepEqual(a.Pods, b.Pods) {
		t.Error("Generate with seeds 1 and 2 gives the same pods, want different ones")
	}
}

// TestWorldHasLoadOfScenario compares the load of the running pods, if every pod ran from its arrival on, with that of the scenario.
func TestWorldHasLoadOfScenario(t *testing.T) {
	s := steady(t, 400)
	// Use at one time of the day is not the mean of the day.
	s.Workloads.Diurnal.Share = 0

	w := generate(t, s, 3)
	for _, at := range []time.Duration{20 * time.Minute, time.Hour, 2*time.Hour - time.Minute} {
		var requested, used float64
		for i, p := range w.Pods {
			if p.Arrival <= at && at < p.Arrival+p.Lifetime {
				requested += float64(p.CPU)
				used += float64(w.MeanUse(i, at))
			}
		}

		requested /= float64(w.CPU())
		used /= float64(w.CPU())
		if math.Abs(requested-s.Load.Requested) > 0.05 || math.Abs(used-s.Load.Used) > 0.05 {
			t.Errorf("after %v %.3f is requested and %.3f used, want %v and %v", at, requested, used, s.Load.Requested, s.Load.Used)
		}
	}
}

func TestTooManyPods(t *testing.T) {
	s := steady(t, 20_000)
	s.Workloads.Lifetime.Mean = metav1.Duration{Duration: time.Minute}
	if _, err := simcluster.Generate(s, 1); err == nil {
		t.Error("Generate of millions of pods returned no error, want one")
	}
}

func TestTruthKeepsBooks(t *testing.T) {
	s := steady(t, 2)
	w := generate(t, s, 1)

	truth := simcluster.NewTruth(w)
	if _, err := truth.Remove(0); !errors.Is(err, simcluster.ErrNotPlaced) {
		t.Errorf("Remove of a pod that does not run: %v, want ErrNotPlaced", err)
	}
	if err := truth.Place(0, 0, 0); err != nil {
		t.Fatalf("Place: %v, want no error", err)
	}

	if err := truth.Place(0, 1, 0); !errors.Is(err, simcluster.ErrPlacedTwice) {
		t.Errorf("Place of a running pod: %v, want ErrPlacedTwice", err)
	}

	var err error
	for i := 1; err == nil && i < len(w.Pods); i++ {
		err = truth.Place(i, 1, 0)
	}

	if !errors.Is(err, simcluster.ErrOverCapacity) {
		t.Errorf("Place beyond the capacity of a node: %v, want ErrOverCapacity", err)
	}
	if node, err := truth.Remove(0); node != 0 || err != nil {
		t.Errorf("Remove = %d, %v, want node 0", node, err)
	}
	if truth.InUse() != 1 {
		t.Errorf("InUse() = %d, want 1", truth.InUse())
	}
}

// TestSampleAddsUp: a node uses what its pods use, a pod about its mean once it has started and nothing before.
func TestSampleAddsUp(t *testing.T) {
	w := generate(t, steady(t, 5), 1)
	truth := simcluster.NewTruth(w)
	for i := range 20 {
		if err := truth.Place(i, i%5, time.Duration(i)*time.Second); err != nil {
			t.Fatalf("Place of pod %d: %v, want no error", i, err)
		}
	}

	const startup = 15 * time.Second
	for _, now := range []time.Duration{10 * time.Second, 20 * time.Second, time.Hour} {
		cpu := make([]float64, 5)
		memory := make([]float64, 5)
		truth.Sample(now, cpu, memory)

		for node := range 5 {
			var use float64
			for i := node; i < 20; i += 5 {
				pod := truth.PodUse(i)
				mean := float64(w.MeanUse(i, now))
				use += pod

				if now < time.Duration(i)*time.Second+startup {
					mean = 0
				}

				// The noise of variance 0.15² is uniform: it stays within √3 of its deviation.
				if math.Abs(pod-mean) > 0.27*mean+1 {
					t.Errorf("at %v pod %d uses %.1f, want its mean of %.1f with up to 27 %% of noise", now, i, pod, mean)
				}
			}

			if got := cpu[node] * float64(w.Nodes[node].CPU); math.Abs(got-use) > 0.01 {
				t.Errorf("at %v node %d uses %.1f, want the %.1f of its pods", now, node, got, use)
			}
		}
	}
}

func TestMeter(t *testing.T) {
	spec := simscenario.Metrics{Scrape: metav1.Duration{Duration: 30 * time.Second}, Outages: []simscenario.Outage{{
		From: metav1.Duration{Duration: time.Hour}, For: metav1.Duration{Duration: time.Minute},
	}}}

	m := simcluster.NewMeter(spec, 2, 1)
	if _, ok := m.Read("cpu_usage_avg_5m", 0); ok {
		t.Error("Read before the first sample returned a value, want none")
	}

	for at := time.Duration(0); at <= 20*time.Minute; at += 30 * time.Second {
		use := 0.2
		if at >= 10*time.Minute && at < 15*time.Minute {
			use = 0.8
		}

		m.Scrape(at, []float64{use, 1.5}, []float64{0.1, 0.1})
	}

	for metric, want := range map[string]float64{
		"cpu_usage_avg_5m": 0.2, "cpu_usage_max_avg_1h": 0.8, "cpu_usage_max_avg_1d": 0.2, "cpu_usage_active": 0.2, "mem_usage_avg_1m": 0.1,
	} {
		got, ok := m.Read(metric, 0)
		if metric == "cpu_usage_max_avg_1d" {
			ok = ok && got >= 0.2 && got <= 0.8
			want = got
		}

		if !ok || math.Abs(got-want) > 0.07 {
			t.Errorf("Read(%s) = %v, %v, want %v", metric, got, ok, want)
		}
	}

	if got, _ := m.Read("cpu_usage_avg_5m", 1); got != 1 {
		t.Errorf("Read of a node with more demand than capacity = %v, want 1", got)
	}
	if _, ok := m.Read("disk_usage_avg_5m", 0); ok {
		t.Error("Read of an unknown metric returned a value, want none")
	}
	if !m.Down(time.Hour) || m.Down(time.Hour+time.Minute) || m.Down(0) {
		t.Error("Down differs from the outage, want true from one hour on, for one minute")
	}
}

func TestLoss(t *testing.T) {
	const nodes = 2000
	spec := simscenario.Metrics{Scrape: metav1.Duration{Duration: 30 * time.Second}, Loss: 0.5, Broken: 0.25}
	m := simcluster.NewMeter(spec, nodes, 1)
	use := make([]float64, nodes)
	m.Scrape(0, use, use)

	silent := 0
	for i := range nodes {
		if _, ok := m.Read("cpu_usage_active", i); !ok {
			silent++
		}
	}

	if share := float64(silent) / nodes; math.Abs(share-0.625) > 0.05 {
		t.Errorf("%.3f of nodes are silent, want 0.25 + 0.75 * 0.5", share)
	}
}

const traceNodes = "sn,cpu_milli,memory_mib\na,4000,8192\nb,4000,8192\n"

func TestTrace(t *testing.T) {
	s, err := simscenario.Named("trace")
	if err != nil {
		t.Fatalf("Named(trace): %v, want no error", err)
	}

	s.Trace.From = metav1.Duration{Duration: 1000 * time.Second}
	s.Trace.Compress = 2
	pods := "name,cpu_milli,memory_mib,creation_time,deletion_time\n" +
		"before,1000,100,0,400\nthere,1000,100,900,2000\nlater,500,0,1100,1200\nfree,0,1,1100,1200\n"

	w, err := simcluster.FromTrace(s, strings.NewReader(traceNodes), strings.NewReader(pods), 1)
	if err != nil {
		t.Fatalf("FromTrace: %v, want no error", err)
	}

	if len(w.Nodes) != 2 || len(w.Pods) != 2 {
		t.Fatalf("FromTrace has %d nodes and %d pods, want 2 and 2", len(w.Nodes), len(w.Pods))
	}

	if p := w.Pods[0]; p.Arrival != 0 || p.Lifetime != 1050*time.Second {
		t.Errorf("the pod that runs already is %+v, want it at the start for 1050 s", p)
	}
	if p := w.Pods[1]; p.Arrival != 50*time.Second || p.Lifetime != 100*time.Second {
		t.Errorf("the pod that comes is %+v, want it after 50 s for 100 s", p)
	}

	for name, bad := range map[string][2]string{
		"no column": {"sn,cpu_milli\n", pods}, "text": {strings.Replace(traceNodes, "4000", "many", 1), pods},
		"backwards": {traceNodes, strings.Replace(pods, "1100,1200", "1100,1000", 1)}, "nothing runs": {traceNodes, before(pods, "before")},
		"one node": {before(traceNodes, "b,"), pods}, "ragged": {traceNodes + "c\n", pods}, "empty": {"", pods},
	} {
		if _, err := simcluster.FromTrace(s, strings.NewReader(bad[0]), strings.NewReader(bad[1]), 1); err == nil {
			t.Errorf("%s: FromTrace returned no error, want one", name)
		}
	}
}

func TestRealTrace(t *testing.T) {
	const folder = "../../../../../shared/traces/"
	nodes, err := os.Open(folder + "cluster-nodes.csv")
	if err != nil {
		t.Skipf("the traces are not here: %v", err)
	}
	defer nodes.Close()

	pods, err := os.Open(folder + "cluster-pods.csv")
	if err != nil {
		t.Skipf("the traces are not here: %v", err)
	}
	defer pods.Close()

	s, err := simscenario.Named("trace")
	if err != nil {
		t.Fatalf("Named(trace): %v, want no error", err)
	}

	w, err := simcluster.FromTrace(s, nodes, pods, 1)
	if err != nil {
		t.Fatalf("FromTrace: %v, want no error", err)
	}

	if len(w.Nodes) != 1523 || len(w.Pods) < 4000 {
		t.Errorf("FromTrace has %d nodes and %d pods, want 1523 and 4000 or more", len(w.Nodes), len(w.Pods))
	}
}

// before returns what comes before the first of a mark.
func before(text, mark string) string {
	head, _, _ := strings.Cut(text, mark)
	return head
}
