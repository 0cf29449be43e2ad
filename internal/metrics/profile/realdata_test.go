// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
)

// stack is the history of a namespace as cAdvisor and kube-state-metrics export it.
type stack struct {
	grid   promserver.Grid
	series []promserver.Series
}

const mib = 1 << 20

// add adds a series; NaN is no sample.
func (s *stack) add(value func(time.Time) float64, pairs ...string) {
	s.series = append(s.series, promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, first int) {
		for i := range dst {
			dst[i] = value(s.grid.Start.Add(time.Duration(first+i) * s.grid.Step))
		}
	}})
}

func always(v float64) func(time.Time) float64 { return func(time.Time) float64 { return v } }

func since(at time.Time, before, after float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		if t.Before(at) {
			return before
		}

		return after
	}
}

// owned adds the owners of the only pod of a Deployment and returns the name of the pod.
func (s *stack) owned(workload string) (pod string) {
	set := workload + "-5d4f8c7b9d"
	pod = set + "-bbbbb"
	s.add(always(1), "__name__", "kube_pod_owner", "namespace", "shop", "pod", pod, "owner_kind", "ReplicaSet", "owner_name", set, "owner_is_controller", "true")
	s.add(always(1), "__name__", "kube_replicaset_owner", "namespace", "shop", "replicaset", set, "owner_kind", "Deployment", "owner_name", workload, "owner_is_controller", "true")

	return pod
}

// usage adds the usage of a container. Its counter has a million seconds at the start.
func (s *stack) usage(pod, container string, cores, bytes func(time.Time) float64) {
	s.add(func(t time.Time) float64 { return 1e6 + cores(t)*t.Sub(s.grid.Start).Seconds() },
		"__name__", "container_cpu_usage_seconds_total", "namespace", "shop", "pod", pod, "container", container, "cpu", "total")
	s.add(bytes, "__name__", "container_memory_working_set_bytes", "namespace", "shop", "pod", pod, "container", container)
}

// spec adds a container with its requests and limits, 0 for none.
func (s *stack) spec(prefix, pod, container string, requestCPU, limitCPU, request, limit float64) {
	common := []string{"namespace", "shop", "pod", pod, "container", container}
	info := append([]string{"__name__", prefix + "_info"}, common...)
	if prefix == "kube_pod_init_container" {
		info = append(info, "restart_policy", "Always")
	}

	s.add(always(1), info...)
	for _, a := range []struct {
		metric, resource string
		v                float64
	}{{"_resource_requests", "cpu", requestCPU}, {"_resource_limits", "cpu", limitCPU}, {"_resource_requests", "memory", request}, {"_resource_limits", "memory", limit}} {
		if a.v > 0 {
			s.add(always(a.v), append([]string{"__name__", prefix + a.metric, "resource", a.resource}, common...)...)
		}
	}
}

// killed adds the series of kills of a container from a time on.
func (s *stack) killed(prefix, pod, container string, at time.Time, restarts func(time.Time) float64) {
	common := []string{"namespace", "shop", "pod", pod, "container", container}
	s.add(since(at, math.NaN(), 1), append([]string{"__name__", prefix + "_status_last_terminated_reason", "reason", "OOMKilled"}, common...)...)
	s.add(restarts, append([]string{"__name__", prefix + "_status_restarts_total"}, common...)...)
}

// decide sizes all workloads with a policy.
func (s *stack) decide(t *testing.T, policy string) map[string]rightsize.Recommendation {
	t.Helper()

	dir := t.TempDir()
	if _, err := promserver.WriteBlocks(t.Context(), dir, s.grid, s.series); err != nil {
		t.Fatal(err)
	}

	server, err := promserver.Open(promserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })

	cfg := prometheus.DefaultConfig()
	cfg.Address = server.URL()
	cfg.Now = func() time.Time { return s.grid.End }
	source, err := prometheus.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	all, err := source.Inventory(t.Context(), []string{"shop"})
	if err != nil {
		t.Fatal(err)
	}

	u, err := Collect(t.Context(), Source{Capabilities: source.Capabilities()}, Request{Workloads: all, End: s.grid.End, Length: 14 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}

	p, err := rightsize.PolicyByName(policy)
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]rightsize.Recommendation{}
	for _, w := range all {
		for _, c := range resource.Decide(u.ResourceInput(w, p, s.grid.End)).Containers {
			out[w.Name+"/"+c.Container] = c
		}
	}

	return out
}

// TestRecommendationsOfRealStacks sizes workloads of which the samples alone tell the wrong story, by the real engine.
func TestRecommendationsOfRealStacks(t *testing.T) {
	end := time.Date(2026, 3, 17, 10, 20, 0, 0, time.UTC)
	const app, init = "kube_pod_container", "kube_pod_init_container"
	s := &stack{grid: promserver.Grid{Start: end.Add(-14 * 24 * time.Hour), End: end, Step: time.Minute}}

	// Samples end at 700Mi, and the kernel killed the container at 1Gi; a sidecar is killed each hour of two days.
	pod := s.owned("killed")
	s.usage(pod, "app", always(0.1), always(700*mib))
	s.spec(app, pod, "app", 0.2, 0, 1024*mib, 1024*mib)
	at := end.Add(-20 * time.Hour)
	s.killed(app, pod, "app", at, since(at, 0, 1))

	pod = s.owned("mesh")
	s.usage(pod, "app", always(0.1), always(200*mib))
	s.usage(pod, "proxy", always(0.05), always(90*mib))
	s.spec(app, pod, "app", 0.2, 0, 256*mib, 256*mib)
	s.spec(init, pod, "proxy", 0.1, 0, 128*mib, 128*mib)
	first := end.Add(-48 * time.Hour)
	s.killed(init, pod, "proxy", first, func(t time.Time) float64 { return max(0, math.Floor(t.Sub(first).Hours())) })

	// Nine hours on weekdays.
	pod = s.owned("office")
	office := func(v float64) func(time.Time) float64 {
		return func(t time.Time) float64 {
			if day := t.Weekday(); day == time.Saturday || day == time.Sunday || t.Hour() < 8 || t.Hour() >= 17 {
				return math.NaN()
			}

			return v
		}
	}
	s.usage(pod, "app", office(0.1), office(300*mib))
	s.spec(app, pod, "app", 1, 0, 1024*mib, 0)

	// The request and the limit are those of the last recommendation.
	pod = s.owned("flat")
	s.usage(pod, "app", always(0.3), always(300*mib))
	s.spec(app, pod, "app", 0.317, 0.317, 321*mib, 321*mib)

	// The heap is bounded by a flag in the image; its live data are small.
	pod = s.owned("java")
	s.usage(pod, "app", always(0.3), always(1500*mib))
	s.spec(app, pod, "app", 1, 0, 4096*mib, 4096*mib)
	s.add(always(3072*mib), "__name__", "jvm_memory_max_bytes", "namespace", "shop", "pod", pod, "container", "app", "area", "heap", "id", "G1 Old Gen", "instance", "a")
	s.add(always(600*mib), "__name__", "jvm_gc_live_data_size_bytes", "namespace", "shop", "pod", pod, "container", "app", "instance", "a")

	// At one scrape the counter is a tenth of a second lower than before, and memory reads as four million terabytes.
	pod = s.owned("dip")
	dip := end.Add(-5 * 24 * time.Hour)
	s.add(func(t time.Time) float64 {
		total := 1e6 + 0.2*t.Sub(s.grid.Start).Seconds()
		if t.Equal(dip) {
			total -= 12.1
		}

		return total
	}, "__name__", "container_cpu_usage_seconds_total", "namespace", "shop", "pod", pod, "container", "app", "cpu", "total")
	s.add(func(t time.Time) float64 {
		if t.Equal(dip) {
			return 1 << 62
		}

		return 300 * mib
	}, "__name__", "container_memory_working_set_bytes", "namespace", "shop", "pod", pod, "container", "app")
	s.spec(app, pod, "app", 0.5, 0, 512*mib, 0)
	s.add(always(8), "__name__", "kube_node_status_capacity", "node", "n1", "resource", "cpu")
	s.add(always(32<<30), "__name__", "kube_node_status_capacity", "node", "n1", "resource", "memory")

	for _, policy := range rightsize.PolicyNames() {
		got := s.decide(t, policy)
		for name, want := range map[string]struct{ lowCPU, highCPU, lowMemory, highMemory float64 }{
			"killed/app": {100, 120, 1024, 1600},
			"mesh/proxy": {50, 60, 128, 280},
			"mesh/app":   {100, 120, 200, 240},
			"office/app": {100, 120, 300, 360},
			"flat/app":   {300, 330, 300, 360},
			"java/app":   {300, 360, 3072, 4300},
			"dip/app":    {200, 240, 300, 360},
		} {
			r := got[name]
			if !r.Ready() {
				t.Errorf("%s, %s: CPU %s %q, memory %s %q, want numbers", policy, name, r.CPU.Status, r.CPU.Message, r.Memory.Status, r.Memory.Message)
				continue
			}

			cpu := float64(*r.Target.CPURequest)
			memory := float64(*r.Target.MemoryRequest) / mib
			if cpu < want.lowCPU || cpu > want.highCPU || memory < want.lowMemory || memory > want.highMemory {
				t.Errorf("%s, %s: %.0fm and %.0fMi, want %.0fm to %.0fm and %.0fMi to %.0fMi",
					policy, name, cpu, memory, want.lowCPU, want.highCPU, want.lowMemory, want.highMemory)
			}
		}
	}
}
