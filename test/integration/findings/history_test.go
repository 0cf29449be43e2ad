// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package findings_test

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/testbed/promserver"
)

// app is a Deployment with one pod and one container, and what the history says of it.
type app struct {
	namespace, name, node, pool string
	// requests and limits of the container.
	cpu, memory, cpuLimit, gpus string
	// use in cores and bytes; traffic in bytes per second, the same for what is sent; none where it is below zero.
	cores, bytes, traffic float64
	// throttled is the share of periods, none where it is below zero.
	throttled float64
	// gpuUse has one entry for each GPU that is measured.
	gpuUse []float64
	days   int
	// wave lets the use of CPU rise from cores to four times as much and fall again, each day.
	wave bool
}

// apps are what runs. Names of the others say what they are for.
func apps() []app {
	quiet := func(namespace, name, node string) app {
		return app{
			namespace: namespace, name: name, node: node, cpu: "100m", memory: "128Mi", cores: 0.001, bytes: 64 << 20, traffic: 50, throttled: -1,
			days: historyDays,
		}
	}
	with := func(a app, change func(*app)) app {
		change(&a)
		return a
	}
	return []app{
		with(quiet("shop", "web", "busy"), func(a *app) { a.cpu, a.cores, a.bytes, a.traffic = "2", 2, 8*gib, 1e5 }),
		with(quiet("shop", "calm", "low"), func(a *app) { a.cpu, a.cores = "500m", 0.05 }),
		quiet("shop", "forgotten", "busy"),
		with(quiet("shop", "newborn", "busy"), func(a *app) { a.days = 1 }),
		with(quiet("shop", "unheard", "busy"), func(a *app) { a.traffic = -1 }),
		with(quiet("shop", "tight", "busy"), func(a *app) { a.cpuLimit, a.throttled, a.cores = "500m", 0.5, 0.4 }),
		with(quiet("shop", "roomy", "busy"), func(a *app) { a.cpuLimit, a.throttled, a.cores = "1", 0.01, 0.3 }),
		with(quiet("shop", "uncounted", "busy"), func(a *app) { a.cpuLimit, a.cores = "500m", 0.2 }),
		with(quiet("ai", "untouched", "gpus"), func(a *app) { a.gpus, a.gpuUse, a.cores = "2", []float64{0, 0}, 1 }),
		with(quiet("ai", "half", "gpus"), func(a *app) { a.gpus, a.gpuUse, a.cores = "2", []float64{90, 0}, 1 }),
		with(quiet("ai", "trainer", "gpus"), func(a *app) { a.gpus, a.gpuUse, a.cores = "1", []float64{95}, 1 }),
		with(quiet("ai", "dark", "gpus"), func(a *app) { a.gpus, a.cores = "1", 1 }),
		with(quiet("sized", "wave", "gpus"), func(a *app) { a.cpu, a.memory, a.cores, a.bytes, a.traffic, a.wave = "1", "1Gi", 1, gib/2, 1e5, true }),
		with(quiet("big", "giant", "pool-1"), func(a *app) { a.pool, a.cpu, a.cores = "big", "3", 0.3 }),
		with(quiet("big", "filler", "pool-2"), func(a *app) { a.pool, a.cpu, a.cores = "big", "1500m", 1.4 }),
		with(quiet("big", "unknown", ""), func(a *app) { a.pool, a.cpu, a.days = "big", "3200m", 0 }),
	}
}

func (a app) set() string { return a.name + "-6d4cf56db6" }
func (a app) pod() string { return a.set() + "-bbbbb" }

// writer gathers series on the grid of the history, which goes on for as long as the tests may take.
type writer struct {
	grid promserver.Grid
	all  []promserver.Series
}

// add gives a series a value for each time of the last days; NaN leaves it out.
func (w *writer) add(days int, value func(at time.Time) float64, pairs ...string) {
	first := now.Add(-time.Duration(days) * 24 * time.Hour)
	w.all = append(w.all, promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, at int) {
		for i := range dst {
			t := w.grid.Start.Add(time.Duration(at+i) * w.grid.Step)
			if dst[i] = math.NaN(); !t.Before(first) {
				dst[i] = value(t)
			}
		}
	}})
}

func (w *writer) counter(days int, perSecond float64, pairs ...string) {
	w.add(days, func(at time.Time) float64 { return at.Sub(w.grid.Start).Seconds() * perSecond }, pairs...)
}

func constant(v float64) func(time.Time) float64 { return func(time.Time) float64 { return v } }

func writeHistory(ctx context.Context, dir string) error {
	w := &writer{grid: promserver.Grid{Start: now.Add(-historyDays * 24 * time.Hour), End: now.Add(time.Hour), Step: scrape}}
	for _, a := range apps() {
		w.app(a)
	}
	for node, days := range map[string]int{"busy": 8, "low": 8, "empty": 8, "gpus": 8, "pool-1": 8, "pool-2": 8, "master": 8, "new": 0} {
		if days == 0 {
			w.node(node, 1)
			continue
		}
		w.node(node, days)
	}
	one := constant(1)
	for _, name := range []string{"lb-orphan", "lb-web", "lb-paused", "lb-quiet", "ip-orphan"} {
		w.add(historyDays, one, "__name__", "kube_endpoint_info", "namespace", "shop", "endpoint", name)
	}
	for _, name := range []string{"lb-web", "lb-quiet"} {
		w.add(historyDays, one, "__name__", "kube_endpoint_address", "namespace", "shop", "endpoint", name, "ip", "10.0.0.1", "ready", "true")
	}
	for _, name := range []string{"mounted", "orphan", "recent", "data-db-0"} {
		w.add(historyDays, one, "__name__", "kube_persistentvolumeclaim_info", "namespace", "shop", "persistentvolumeclaim", name)
	}
	mount := func(claim, pod string, value func(time.Time) float64) {
		w.add(historyDays, value, "__name__", "kube_pod_spec_volumes_persistentvolumeclaims_info", "namespace", "shop",
			"persistentvolumeclaim", claim, "pod", pod, "volume", "v")
	}
	mount("mounted", "web-6d4cf56db6-bbbbb", one)
	mount("recent", "job-1", func(at time.Time) float64 {
		if at.After(now.Add(-30*time.Hour)) || at.Before(now.Add(-31*time.Hour)) {
			return math.NaN()
		}
		return 1
	})
	_, err := promserver.WriteBlocks(ctx, dir, w.grid, w.all)
	return err
}

// app writes what cAdvisor, kube-state-metrics and the DCGM exporter would have exported.
func (w *writer) app(a app) {
	pod := []string{"namespace", a.namespace, "pod", a.pod()}
	container := append([]string{"container", "app"}, pod...)
	name := func(metric string, more ...[]string) []string {
		out := []string{"__name__", metric}
		for _, m := range more {
			out = append(out, m...)
		}
		return out
	}
	if a.days == 0 {
		return
	}
	used := func(seconds float64) float64 { return seconds * a.cores }
	if a.wave { // The integral of cores x (1 + 3 x (1 - cos) / 2).
		used = func(seconds float64) float64 {
			const day = 24 * 3600 / (2 * math.Pi)
			return a.cores * (2.5*seconds - 1.5*day*math.Sin(seconds/day))
		}
	}
	w.add(a.days, func(at time.Time) float64 { return used(at.Sub(w.grid.Start).Seconds()) }, name("container_cpu_usage_seconds_total", container)...)
	w.add(a.days, constant(a.bytes), name("container_memory_working_set_bytes", container)...)
	if a.traffic >= 0 {
		w.counter(a.days, a.traffic, name("container_network_receive_bytes_total", pod, []string{"interface", "eth0"})...)
		w.counter(a.days, a.traffic, name("container_network_transmit_bytes_total", pod, []string{"interface", "eth0"})...)
	}
	if a.throttled >= 0 {
		w.counter(a.days, 10, name("container_cpu_cfs_periods_total", container)...)
		w.counter(a.days, 10*a.throttled, name("container_cpu_cfs_throttled_periods_total", container)...)
	}
	for i, use := range a.gpuUse {
		// As with a ServiceMonitor that keeps Prometheus's own labels.
		device := []string{
			"namespace", "monitoring", "pod", "dcgm-exporter-x", "container", "exporter", "exported_namespace", a.namespace,
			"exported_pod", a.pod(), "exported_container", "app", "UUID", fmt.Sprintf("GPU-%s-%d", a.name, i), "gpu", fmt.Sprint(i),
		}
		w.add(a.days, constant(use), name("DCGM_FI_DEV_GPU_UTIL", device)...)
		w.add(a.days, constant(2), name("DCGM_FI_DEV_FB_USED", device)...)
	}
	one := constant(1)
	w.add(a.days, one, name("kube_pod_owner", pod, []string{"owner_kind", "ReplicaSet", "owner_name", a.set(), "owner_is_controller", "true"})...)
	w.add(a.days, one, "__name__", "kube_replicaset_owner", "namespace", a.namespace, "replicaset", a.set(),
		"owner_kind", "Deployment", "owner_name", a.name, "owner_is_controller", "true")
	w.add(a.days, one, name("kube_pod_info", pod, []string{"node", a.node, "created_by_kind", "ReplicaSet", "created_by_name", a.set()})...)
	w.add(a.days, one, name("kube_pod_status_phase", pod, []string{"phase", "Running"})...)
}

// node writes what is known of a node of four cores and 16 GiB: its agent, and a use that is low but on busy ones.
func (w *writer) node(node string, days int) {
	one := constant(1)
	w.add(days, one, "__name__", "kube_node_info", "node", node)
	w.add(days, one, "__name__", "kube_pod_info", "namespace", "kube-system", "pod", "agent-"+node, "node", node, "created_by_kind", "DaemonSet", "created_by_name", "agent")
	idle, free := 0.95, 15.0*gib
	if node == "busy" || node == "pool-1" || node == "pool-2" || node == "gpus" {
		idle, free = 0.4, 4*gib
	}
	for cpu := range 4 {
		w.counter(days, idle, "__name__", "node_cpu_seconds_total", "mode", "idle", "instance", node+":9100", "cpu", fmt.Sprint(cpu))
	}
	w.add(days, constant(16*gib), "__name__", "node_memory_MemTotal_bytes", "instance", node+":9100")
	w.add(days, constant(free), "__name__", "node_memory_MemAvailable_bytes", "instance", node+":9100")
}
