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

// fixtureApp is a Deployment with one pod and one container, and its history.
type fixtureApp struct {
	namespace, name, node, pool string
	// cpu, memory, cpuLimit and gpus are the requests and limits of the container.
	cpu, memory, cpuLimit, gpus string
	// cores and bytes are the usage; traffic is the received and the sent bytes per second, without series if
	// negative.
	cores, bytes, traffic float64
	// throttled is the share of throttled periods, without series if negative.
	throttled float64
	// gpuUse is the utilization of each measured GPU.
	gpuUse []float64
	days   int
	// wave is set if the CPU usage follows a daily wave between cores and four times cores.
	wave bool
}

// fixtureApps returns the Deployments of the cluster, named after their finding.
func fixtureApps() []fixtureApp {
	quiet := func(namespace, name, node string) fixtureApp {
		return fixtureApp{
			namespace: namespace, name: name, node: node, cpu: "100m", memory: "128Mi", cores: 0.001, bytes: 64 << 20, traffic: 50, throttled: -1,
			days: historyDays,
		}
	}

	with := func(a fixtureApp, change func(*fixtureApp)) fixtureApp {
		change(&a)
		return a
	}

	return []fixtureApp{
		with(quiet("shop", "web", "busy"), func(a *fixtureApp) {
			a.cpu = "2"
			a.cores = 2
			a.bytes = 8 * gib
			a.traffic = 1e5
		}),
		with(quiet("shop", "calm", "low"), func(a *fixtureApp) { a.cpu, a.cores = "500m", 0.05 }),
		quiet("shop", "forgotten", "busy"),
		with(quiet("shop", "newborn", "busy"), func(a *fixtureApp) { a.days = 1 }),
		with(quiet("shop", "unheard", "busy"), func(a *fixtureApp) { a.traffic = -1 }),
		with(quiet("shop", "tight", "busy"), func(a *fixtureApp) {
			a.cpuLimit = "500m"
			a.throttled = 0.5
			a.cores = 0.4
		}),
		with(quiet("shop", "roomy", "busy"), func(a *fixtureApp) {
			a.cpuLimit = "1"
			a.throttled = 0.01
			a.cores = 0.3
		}),
		with(quiet("shop", "uncounted", "busy"), func(a *fixtureApp) { a.cpuLimit, a.cores = "500m", 0.2 }),
		with(quiet("ai", "untouched", "gpus"), func(a *fixtureApp) {
			a.gpus = "2"
			a.gpuUse = []float64{0, 0}
			a.cores = 1
		}),
		with(quiet("ai", "half", "gpus"), func(a *fixtureApp) {
			a.gpus = "2"
			a.gpuUse = []float64{90, 0}
			a.cores = 1
		}),
		with(quiet("ai", "trainer", "gpus"), func(a *fixtureApp) {
			a.gpus = "1"
			a.gpuUse = []float64{95}
			a.cores = 1
		}),
		with(quiet("ai", "dark", "gpus"), func(a *fixtureApp) { a.gpus, a.cores = "1", 1 }),
		with(quiet("sized", "wave", "gpus"), func(a *fixtureApp) {
			a.cpu = "1"
			a.memory = "1Gi"
			a.cores = 1
			a.bytes = gib / 2
			a.traffic = 1e5
			a.wave = true
		}),
		with(quiet("big", "giant", "pool-1"), func(a *fixtureApp) {
			a.pool = "big"
			a.cpu = "3"
			a.cores = 0.3
		}),
		with(quiet("big", "filler", "pool-2"), func(a *fixtureApp) {
			a.pool = "big"
			a.cpu = "1500m"
			a.cores = 1.4
		}),
		with(quiet("big", "unknown", ""), func(a *fixtureApp) {
			a.pool = "big"
			a.cpu = "3200m"
			a.days = 0
		}),
	}
}

func (a fixtureApp) replicaSetName() string { return a.name + "-6d4cf56db6" }
func (a fixtureApp) podName() string        { return a.replicaSetName() + "-bbbbb" }

// historyWriter collects series on a grid that extends beyond the duration of the tests.
type historyWriter struct {
	grid   promserver.Grid
	series []promserver.Series
}

// add adds a series with the values of the last days; NaN is no sample.
func (w *historyWriter) add(days int, value func(at time.Time) float64, pairs ...string) {
	first := now.Add(-time.Duration(days) * 24 * time.Hour)
	w.series = append(w.series, promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, at int) {
		for i := range dst {
			t := w.grid.Start.Add(time.Duration(at+i) * w.grid.Step)
			dst[i] = math.NaN()

			if !t.Before(first) {
				dst[i] = value(t)
			}
		}
	}})
}

func (w *historyWriter) counter(days int, perSecond float64, pairs ...string) {
	w.add(days, func(at time.Time) float64 { return at.Sub(w.grid.Start).Seconds() * perSecond }, pairs...)
}

func constant(v float64) func(time.Time) float64 { return func(time.Time) float64 { return v } }

func writeHistory(ctx context.Context, dir string) error {
	w := &historyWriter{grid: promserver.Grid{Start: now.Add(-historyDays * 24 * time.Hour), End: now.Add(time.Hour), Step: scrapeInterval}}
	for _, a := range fixtureApps() {
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

	_, err := promserver.WriteBlocks(ctx, dir, w.grid, w.series)
	return err
}

// app adds the series of cAdvisor, kube-state-metrics and the DCGM exporter.
func (w *historyWriter) app(a fixtureApp) {
	pod := []string{"namespace", a.namespace, "pod", a.podName()}
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
		// Labels as with a ServiceMonitor without honorLabels.
		device := []string{
			"namespace", "monitoring", "pod", "dcgm-exporter-x", "container", "exporter", "exported_namespace", a.namespace,
			"exported_pod", a.podName(), "exported_container", "app", "UUID", fmt.Sprintf("GPU-%s-%d", a.name, i), "gpu", fmt.Sprint(i),
		}
		w.add(a.days, constant(use), name("DCGM_FI_DEV_GPU_UTIL", device)...)
		w.add(a.days, constant(2), name("DCGM_FI_DEV_FB_USED", device)...)
	}

	one := constant(1)
	w.add(a.days, one, name("kube_pod_owner", pod, []string{"owner_kind", "ReplicaSet", "owner_name", a.replicaSetName(), "owner_is_controller", "true"})...)
	w.add(a.days, one, "__name__", "kube_replicaset_owner", "namespace", a.namespace, "replicaset", a.replicaSetName(),
		"owner_kind", "Deployment", "owner_name", a.name, "owner_is_controller", "true")
	w.add(a.days, one, name("kube_pod_info", pod, []string{"node", a.node, "created_by_kind", "ReplicaSet", "created_by_name", a.replicaSetName()})...)
	w.add(a.days, one, name("kube_pod_status_phase", pod, []string{"phase", "Running"})...)
}

// node adds the series of a node with four cores and 16 GiB: its DaemonSet pod and its usage, low unless the node is
// busy.
func (w *historyWriter) node(node string, days int) {
	one := constant(1)
	w.add(days, one, "__name__", "kube_node_info", "node", node)
	w.add(days, one, "__name__", "kube_pod_info", "namespace", "kube-system", "pod", "agent-"+node, "node", node, "created_by_kind", "DaemonSet", "created_by_name", "agent")

	idle := 0.95
	free := 15.0 * gib
	if node == "busy" || node == "pool-1" || node == "pool-2" || node == "gpus" {
		idle = 0.4
		free = 4 * gib
	}

	for cpu := range 4 {
		w.counter(days, idle, "__name__", "node_cpu_seconds_total", "mode", "idle", "instance", node+":9100", "cpu", fmt.Sprint(cpu))
	}

	w.add(days, constant(16*gib), "__name__", "node_memory_MemTotal_bytes", "instance", node+":9100")
	w.add(days, constant(free), "__name__", "node_memory_MemAvailable_bytes", "instance", node+":9100")
}
