// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"math"
	"slices"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
)

const hourlyHours = 3

// counter increases at a rate per second.
func (w *fixture) counter(perSecond float64, pairs ...string) {
	w.add(func(t time.Time) float64 { return t.Sub(w.grid.Start).Seconds() * perSecond }, pairs...)
}

// ask reads a metric and returns its values by the result of name for their keys.
func ask(t *testing.T, w *fixture, of metrics.HourlyMetric, name func(metrics.HourlySeries) string, namespaces ...string) map[string][]float64 {
	t.Helper()

	list, err := w.source(t, nil).Capabilities().Hourly.Hourly(t.Context(), metrics.HourlyRequest{Metric: of, Namespaces: namespaces, End: w.grid.End, Hours: hourlyHours})
	if err != nil {
		t.Fatal(err)
	}

	out := map[string][]float64{}
	for _, h := range list {
		if len(h.Values) != hourlyHours {
			t.Errorf("Hourly: %d values of %v, want %d", len(h.Values), h.Key, hourlyHours)
		}
		if _, twice := out[name(h)]; twice {
			t.Errorf("Hourly returned %s twice, want once", name(h))
		}

		out[name(h)] = h.Values
	}

	return out
}

func byWorkload(h metrics.HourlySeries) string {
	return h.Key.Workload.Namespace + "/" + h.Key.Workload.Kind + "/" + h.Key.Workload.Name + "/" + h.Key.Pod + "/" + h.Key.Container + h.Device
}

func byNode(h metrics.HourlySeries) string { return h.Key.Node }

func want(t *testing.T, got map[string][]float64, name string, values ...float64) {
	t.Helper()

	same := func(a, b float64) bool {
		return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 0.03*math.Abs(b)+1e-9
	}
	if !slices.EqualFunc(got[name], values, same) {
		t.Errorf("values of %s: %v, want %v", name, got[name], values)
	}
}

func newHourlyFixture() *fixture { return newFixture(today.Add(-4*time.Hour), today) }

func TestHourlyFiguresOfPods(t *testing.T) {
	w := newHourlyFixture()
	w.cpu("shop", "web-6d4cf56db6-bbbbb", "app", constant(0.2))
	w.cpu("shop", "web-6d4cf56db6-bbbbb", "proxy", constant(0.1))
	w.cpu("bank", "ledger-0", "app", constant(1))
	w.owned(podOwnerMetric, "shop", "pod", "web-6d4cf56db6-bbbbb", "ReplicaSet", "web-6d4cf56db6", constant(1))
	w.owned(replicaSetOwnerMetric, "shop", "replicaset", "web-6d4cf56db6", "Deployment", "web", constant(1))

	pod := []string{"namespace", "shop", "pod", "web-6d4cf56db6-bbbbb"}
	for _, job := range []string{"kubelet", "agent"} { // Two jobs scrape the same traffic, which counts once; the loopback interface does not count.
		for face, rate := range map[string]float64{"eth0": 100, "eth1": 50, "lo": 1e6} {
			w.counter(rate, append([]string{"__name__", "container_network_receive_bytes_total", "interface", face, "job", job}, pod...)...)
			w.counter(2*rate, append([]string{"__name__", "container_network_transmit_bytes_total", "interface", face, "job", job}, pod...)...)
		}
	}

	w.counter(7, "__name__", "container_network_receive_bytes_total", "interface", "eth0", "id", "/", "instance", "node")

	cpu := ask(t, w, metrics.PodCPU, byWorkload)
	want(t, cpu, "shop/Deployment/web/web-6d4cf56db6-bbbbb/", 0.3, 0.3, 0.3)
	want(t, cpu, "bank/StatefulSet/ledger/ledger-0/", 1, 1, 1)

	if only := ask(t, w, metrics.PodCPU, byWorkload, "bank"); len(only) != 1 {
		t.Errorf("CPU of pods of bank: %v, want one series", only)
	}

	in := ask(t, w, metrics.PodReceived, byWorkload)
	out := ask(t, w, metrics.PodSent, byWorkload)
	want(t, in, "shop/Deployment/web/web-6d4cf56db6-bbbbb/", 150, 150, 150)
	want(t, out, "shop/Deployment/web/web-6d4cf56db6-bbbbb/", 300, 300, 300)

	if len(in) != 1 {
		t.Errorf("received bytes %v, want one pod: the traffic of a node is no pod's", in)
	}
}

// TestHourlyOwnersOnce checks that owners are read once for several metrics, with the same results as single reads.
func TestHourlyOwnersOnce(t *testing.T) {
	w := newHourlyFixture()
	for _, ns := range []string{"shop", "bank"} {
		w.owned(podOwnerMetric, ns, "pod", "web-6d4cf56db6-bbbbb", "ReplicaSet", "web-6d4cf56db6", constant(1))
		w.owned(replicaSetOwnerMetric, ns, "replicaset", "web-6d4cf56db6", "Deployment", "front", constant(1))
	}

	w.cpu("shop", "web-6d4cf56db6-bbbbb", "app", constant(0.2))
	w.cpu("bank", "web-6d4cf56db6-bbbbb", "app", constant(0.4))
	w.counter(100, "__name__", "container_network_receive_bytes_total", "interface", "eth0", "namespace", "shop", "pod", "web-6d4cf56db6-bbbbb")
	source := w.source(t, nil)

	read := func(from metrics.HourlyReader, of metrics.HourlyMetric, namespaces ...string) (names []string, queries int64) {
		before := source.Stats().Queries
		list, err := from.Hourly(t.Context(), metrics.HourlyRequest{Metric: of, Namespaces: namespaces, End: w.grid.End, Hours: hourlyHours})
		if err != nil {
			t.Fatal(err)
		}

		for _, h := range list {
			names = append(names, h.Key.Workload.String())
		}

		slices.Sort(names)
		return names, source.Stats().Queries - before
	}

	cached := source.Capabilities().WithCache()
	for i, c := range []struct {
		of         metrics.HourlyMetric
		namespaces []string
	}{
		{metrics.PodReceived, []string{"shop", "bank"}}, // The owners of bank, which has no traffic, are read as well.
		{metrics.PodCPU, []string{"bank", "shop"}},
		{metrics.PodCPU, []string{"bank"}},
		{metrics.PodSent, []string{"shop"}},
	} {
		got, queries := read(cached.Hourly, c.of, c.namespaces...)
		want, _ := read(source.Capabilities().Hourly, c.of, c.namespaces...)
		if !slices.Equal(got, want) || (i == 0) != (queries > 1) {
			t.Errorf("%d: %v with %d queries, want %v, and more than one query the first time alone", i, got, queries, want)
		}
	}

	if cached.WithCache().Hourly != cached.Hourly {
		t.Error("WithCache of a cached reader returned another, want the same with its cache")
	}
}

func TestHourlyThrottling(t *testing.T) {
	w := newHourlyFixture()
	add := func(container string, periods, held float64) {
		labels := []string{"namespace", "shop", "pod", "db-0", "container", container}
		if periods >= 0 {
			w.counter(periods, append([]string{"__name__", periodsMetric}, labels...)...)
		}
		if held >= 0 {
			w.counter(held, append([]string{"__name__", throttledMetric}, labels...)...)
		}
	}

	add("held", 10, 4)
	add("free", 10, 0)
	add("still", 0, 0)
	add("half-known", 10, -1)
	add("wrong", 1, 5)
	got := ask(t, w, metrics.ContainerThrottled, byWorkload, "shop")
	want(t, got, "shop/StatefulSet/db/db-0/held", 0.4, 0.4, 0.4)
	want(t, got, "shop/StatefulSet/db/db-0/free", 0, 0, 0)
	want(t, got, "shop/StatefulSet/db/db-0/still", 0, 0, 0)
	want(t, got, "shop/StatefulSet/db/db-0/wrong", 1, 1, 1)

	if len(got) != 4 {
		t.Errorf("throttled containers %v, want 4: a single counter gives no ratio", got)
	}
}

func TestHourlyGPUs(t *testing.T) {
	w := newHourlyFixture()
	night := today.Add(-90 * time.Minute)
	use := func(at time.Time) float64 {
		if at.Equal(night) {
			return 80
		}

		return 1
	}

	w.add(use, "__name__", "DCGM_FI_DEV_GPU_UTIL", "UUID", "GPU-1", "gpu", "0", "namespace", "ai", "pod", "train-0", "container", "main")
	w.add(constant(512), "__name__", "DCGM_FI_DEV_FB_USED", "UUID", "GPU-1", "gpu", "0", "namespace", "ai", "pod", "train-0", "container", "main")

	// Prometheus overwrote the labels of the pod with those of the exporter.
	w.add(constant(0), "__name__", "DCGM_FI_DEV_GPU_UTIL", "UUID", "GPU-2", "gpu", "1", "namespace", "monitoring", "pod", "dcgm-exporter-x",
		"container", "exporter", "exported_namespace", "ai", "exported_pod", "train-1", "exported_container", "main")

	// A GPU that no container uses.
	w.add(constant(0), "__name__", "DCGM_FI_DEV_GPU_UTIL", "UUID", "GPU-3", "gpu", "2")
	got := ask(t, w, metrics.GPUUse, byWorkload, "ai")
	want(t, got, "ai/StatefulSet/train/train-0/mainGPU-1", 0.01, 0.8, 0.01)
	want(t, got, "ai/StatefulSet/train/train-1/mainGPU-2", 0, 0, 0)

	if len(got) != 2 {
		t.Errorf("GPU metrics %v, want 2 series", got)
	}
	want(t, ask(t, w, metrics.GPUMemory, byWorkload), "ai/StatefulSet/train/train-0/mainGPU-1", 512<<20, 512<<20, 512<<20)
}

// info adds a pod as exported by kube-state-metrics.
func (w *fixture) info(pod, kind, node string, phase string, when func(time.Time) float64) {
	w.add(when, "__name__", podInfoMetric, "namespace", "shop", "pod", pod, "created_by_kind", kind, "node", node)
	if phase != "" {
		w.add(when, "__name__", phaseMetric, "namespace", "shop", "pod", pod, "phase", phase)
	}
}

func TestHourlyFiguresOfNodes(t *testing.T) {
	w := newHourlyFixture()
	for _, n := range []string{"busy", "empty", "new"} {
		when := constant(1)
		if n == "new" {
			when = between(today.Add(-30*time.Minute), today.Add(time.Hour), 1)
		}

		w.add(when, "__name__", nodeInfoMetric, "node", n)
		w.info("agent-"+n, "DaemonSet", n, "Running", when)
	}

	w.info("web", "ReplicaSet", "busy", "Running", constant(1))
	w.info("static", "Node", "empty", "Running", constant(1))
	w.info("done", "Job", "empty", "Succeeded", constant(1))

	// A job of ten minutes, an hour and a half ago.
	w.info("short", "Job", "empty", "Running", between(today.Add(-90*time.Minute), today.Add(-80*time.Minute), 1))
	w.info("waiting", "ReplicaSet", "", "Pending", constant(1))

	for pod, node := range map[string]string{"web": "busy", "done": "empty", "agent-busy": "busy"} {
		w.add(constant(2), "__name__", requestsMetric, "namespace", "shop", "pod", pod, "container", "c", "node", node, "resource", "cpu")
	}

	nan := math.NaN()
	pods := ask(t, w, metrics.NodePods, byNode)
	want(t, pods, "busy", 1, 1, 1)
	want(t, pods, "empty", 0, 1, 0)
	want(t, pods, "new", nan, nan, 0)
	requests := ask(t, w, metrics.NodeCPURequests, byNode, "ignored")
	want(t, requests, "busy", 4, 4, 4)
	want(t, requests, "empty", 0, 0, 0)

	if got := ask(t, w, metrics.NodeMemoryRequests, byNode); len(got) == 0 {
		t.Error("no memory requests of nodes, want zeros: the metric exists for CPU")
	}
}

// TestHourlyNothingIsNotZero checks that there is no value if the metric of a count is missing.
func TestHourlyNothingIsNotZero(t *testing.T) {
	w := newHourlyFixture()
	w.add(constant(1), "__name__", nodeInfoMetric, "node", "a")
	w.add(constant(1), "__name__", endpointMetric, "namespace", "shop", "endpoint", "web")
	w.add(constant(1), "__name__", claimMetric, "namespace", "shop", "persistentvolumeclaim", "data")

	for _, f := range []metrics.HourlyMetric{
		metrics.NodePods, metrics.NodeCPURequests, metrics.ServiceAddresses, metrics.ClaimMounts, metrics.PodCPU, metrics.PodReceived,
		metrics.ContainerThrottled, metrics.GPUUse, metrics.GPUMemory,
	} {
		if got := ask(t, w, f, byWorkload); len(got) != 0 {
			t.Errorf("Hourly(%s) of an empty server = %v, want none", f, got)
		}
	}

	if _, err := w.source(t, nil).Capabilities().Hourly.Hourly(t.Context(), metrics.HourlyRequest{Metric: "other", Hours: 1}); err == nil {
		t.Error("Hourly of an unknown metric: no error, want one")
	}
}

func TestHourlyServicesAndClaims(t *testing.T) {
	w := newHourlyFixture()
	for _, name := range []string{"web", "orphan", "old"} {
		w.add(constant(1), "__name__", endpointMetric, "namespace", "shop", "endpoint", name)
		w.add(constant(1), "__name__", claimMetric, "namespace", "shop", "persistentvolumeclaim", name)
	}

	lastHour := between(today.Add(-3*time.Hour), today.Add(-125*time.Minute), 1)
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		w.add(constant(1), "__name__", addressMetric, "namespace", "shop", "endpoint", "web", "ip", ip, "ready", "true")
	}

	w.add(constant(1), "__name__", addressMetric, "namespace", "shop", "endpoint", "web", "ip", "10.0.0.2", "ready", "false")
	w.add(lastHour, "__name__", addressMetric, "namespace", "shop", "endpoint", "old", "ip", "10.0.0.3", "ready", "true")
	mount := func(claim, pod, phase string, when func(time.Time) float64) {
		w.add(when, "__name__", claimMountMetric, "namespace", "shop", "pod", pod, "persistentvolumeclaim", claim, "volume", "v")
		w.add(when, "__name__", phaseMetric, "namespace", "shop", "pod", pod, "phase", phase)
	}
	mount("web", "web-0", "Running", constant(1))
	mount("orphan", "job-1", "Succeeded", constant(1))
	mount("old", "job-2", "Running", lastHour)

	for _, c := range []struct {
		of   metrics.HourlyMetric
		kind string
		web  float64
	}{{metrics.ServiceAddresses, "Service", 2}, {metrics.ClaimMounts, "PersistentVolumeClaim", 1}} {
		got := ask(t, w, c.of, byWorkload, "shop")
		want(t, got, "shop/"+c.kind+"/web//", c.web, c.web, c.web)
		want(t, got, "shop/"+c.kind+"/orphan//", 0, 0, 0)
		want(t, got, "shop/"+c.kind+"/old//", 1, 0, 0)
	}

	// Before 2.6, kube-state-metrics exported the counts.
	before := newHourlyFixture()
	before.add(constant(1), "__name__", endpointMetric, "namespace", "shop", "endpoint", "web")
	before.add(constant(1), "__name__", addressesMetric, "namespace", "shop", "endpoint", "web")
	before.add(constant(2), "__name__", addressesUnready, "namespace", "shop", "endpoint", "web")
	want(t, ask(t, before, metrics.ServiceAddresses, byWorkload), "shop/Service/web//", 3, 3, 3)
}

// TestHourlyOfManyAsksInParts checks that a request above the limit of a response is split without changing the
// result.
func TestHourlyOfManyAsksInParts(t *testing.T) {
	w := newHourlyFixture()
	for _, ns := range []string{"a", "b", "c", "d"} {
		for _, pod := range []string{"x-0", "x-1", "x-2"} {
			w.cpu(ns, pod, "app", constant(0.5))
		}
	}

	s := w.source(t, func(c *Config) { c.MaxSamples = 1000 })
	list, err := s.Capabilities().Hourly.Hourly(t.Context(), metrics.HourlyRequest{Metric: metrics.PodCPU, End: w.grid.End, Hours: 400})
	if err != nil {
		t.Fatal(err)
	}

	if len(list) != 12 || s.Stats().Splits == 0 {
		t.Errorf("Hourly returned %d series after %d splits, want 12 after at least 1", len(list), s.Stats().Splits)
	}

	for _, h := range list {
		if h.Key.Workload != (workload.Ref{Namespace: h.Key.Workload.Namespace, APIVersion: "apps/v1", Kind: "StatefulSet", Name: "x"}) || h.Values[399] < 0.49 {
			t.Errorf("Hourly: series %+v, want a StatefulSet x with a last value of about 0.5", h)
		}
	}
}
