// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/testbed/promserver"
)

// shape is the size of a data set.
type shape struct {
	containers, namespaces, days int
	// podsPerWorkload is how many pods, 1 to 10, share a ReplicaSet and so a Deployment.
	podsPerWorkload int
	scrape          time.Duration
	end             time.Time
	// current adds the metrics of kube-state-metrics for the last hours: containers and their requests.
	current bool
	// pageCache adds the metric of page cache.
	pageCache bool
}

// String names the directory of the data set. The number at its end grows when what is written changes.
func (s shape) String() string {
	name := fmt.Sprintf("c%d-n%d-d%d-s%v-1", s.containers, s.namespaces, s.days, s.scrape)
	if s.current {
		name = fmt.Sprintf("p%d-%s", s.podsPerWorkload, name)
	}
	if s.pageCache {
		name += "-cache"
	}

	return name
}

func (s shape) start() time.Time { return s.end.AddDate(0, 0, -s.days) }

// ready is the file that marks a complete data set.
const ready = "ready.json"

// build writes the data set: what cAdvisor and kube-state-metrics export for that many containers.
func build(ctx context.Context, s shape, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	var series []promserver.Series
	for i := range s.containers {
		series = append(series, s.containerSeries(i)...)
	}

	for w := range s.workloads() {
		series = append(series, constant("kube_replicaset_owner", "namespace", s.namespace(w*s.podsPerWorkload), "replicaset", replicaSet(w),
			"owner_kind", "Deployment", "owner_name", deployment(w), "owner_is_controller", "true"))
	}

	grid := promserver.Grid{Start: s.start(), End: s.end, Step: s.scrape}
	begin := time.Now()

	stats, err := promserver.WriteBlocks(ctx, dir, grid, series)
	if err != nil {
		return err
	}

	// The file marks the data set as complete; an interrupted build has none.
	stats.Took = time.Since(begin)

	raw, err := json.Marshal(stats)
	if err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(dir, ready), raw, 0o600)
}

func (s shape) workloads() int { return (s.containers + s.podsPerWorkload - 1) / s.podsPerWorkload }

func (s shape) namespace(container int) string {
	workload := container / s.podsPerWorkload
	return fmt.Sprintf("team-%03d", workload%s.namespaces)
}

func deployment(workload int) string { return fmt.Sprintf("app-%05d", workload) }

func replicaSet(workload int) string { return deployment(workload) + "-5d4f8c7b9d" }

// containerSeries is one container, alone in its pod, with the labels that a kubelet and kube-state-metrics add.
func (s shape) containerSeries(i int) []promserver.Series {
	workload := i / s.podsPerWorkload
	const letters = "bcdfghjklm"
	ns := s.namespace(i)
	pod := fmt.Sprintf("%s-x8k2%c", replicaSet(workload), letters[i%s.podsPerWorkload])
	node := fmt.Sprintf("node-%04d", i%500)

	// Names have the lengths of real ones, as the size of labels matters to Prometheus.
	id := fmt.Sprintf("/kubepods.slice/kubepods-burstable.slice/pod%08x.slice/cri-%016x.scope", i, uint64(i)*0x9e3779b97f4a7c15)

	cadvisor := func(metric string, more ...string) labels.Labels {
		return labels.FromStrings(append([]string{
			"__name__", metric, "namespace", ns, "pod", pod, "container", "app", "id", id, "image", "registry.example/app:1",
			"instance", node + ":10250", "job", "kubelet", "metrics_path", "/metrics/cadvisor", "node", node,
		}, more...)...)
	}

	out := []promserver.Series{
		{Labels: cadvisor("container_cpu_usage_seconds_total", "cpu", "total"), Fill: s.cpu(i)},
		{Labels: cadvisor("container_memory_working_set_bytes"), Fill: s.memory(i)},
		constant("kube_pod_owner", "namespace", ns, "pod", pod, "owner_kind", "ReplicaSet", "owner_name", replicaSet(workload), "owner_is_controller", "true"),
		constant("kube_pod_info", "namespace", ns, "pod", pod, "node", node, "created_by_kind", "ReplicaSet", "created_by_name", replicaSet(workload)),
	}

	if s.pageCache {
		out = append(out, promserver.Series{Labels: cadvisor("container_memory_total_active_file_bytes"), Fill: s.activeFile(i)})
	}

	if s.current {
		out = append(out, s.recent(1, "kube_pod_container_info", "namespace", ns, "pod", pod, "container", "app"),
			s.recent(0.5, "kube_pod_container_resource_requests", "namespace", ns, "pod", pod, "container", "app", "resource", "cpu", "unit", "core"),
			s.recent(1<<30, "kube_pod_container_resource_requests", "namespace", ns, "pod", pod, "container", "app", "resource", "memory", "unit", "byte"))
	}

	return out
}

// recent is constant over the last three hours and absent before.
func (s shape) recent(value float64, metric string, pairs ...string) promserver.Series {
	out := constant(metric, pairs...)
	from := int((time.Duration(s.days)*24*time.Hour - 3*time.Hour) / s.scrape)
	out.Fill = func(dst []float64, first int) {
		for i := range dst {
			dst[i] = value

			if first+i < from {
				dst[i] = math.NaN()
			}
		}
	}

	return out
}

func constant(metric string, pairs ...string) promserver.Series {
	pairs = append([]string{"__name__", metric, "instance", "kube-state-metrics:8080", "job", "kube-state-metrics"}, pairs...)
	return promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, _ int) {
		for i := range dst {
			dst[i] = 1
		}
	}}
}

// cpu is a counter with a daily cycle and noise, in whole nanoseconds like a kernel's.
func (s shape) cpu(i int) func([]float64, int) {
	random := rand.New(rand.NewPCG(uint64(i), 1))
	mean := 0.02 + 0.5*random.Float64()
	phase := random.Float64() * 2 * math.Pi
	total := 0.0

	return func(dst []float64, first int) {
		for k := range dst {
			at := float64(first+k) * s.scrape.Seconds() / 86400
			use := mean * (1 + 0.6*math.Sin(2*math.Pi*at+phase)) * (0.7 + 0.6*random.Float64())
			total += use * s.scrape.Seconds()
			dst[k] = math.Round(total*1e9) / 1e9
		}
	}
}

// memory is a level in whole pages that wanders.
func (s shape) memory(i int) func([]float64, int) {
	random := rand.New(rand.NewPCG(uint64(i), 2))
	level := 50e6 + 900e6*random.Float64()
	return func(dst []float64, _ int) {
		for k := range dst {
			level = max(20e6, level*(1+0.004*(random.Float64()-0.5)))
			dst[k] = math.Round(level/4096) * 4096
		}
	}
}

// activeFile is a share of the memory, less of some containers than of others.
func (s shape) activeFile(i int) func([]float64, int) {
	memory := s.memory(i)
	share := rand.New(rand.NewPCG(uint64(i), 3)).Float64()
	return func(dst []float64, first int) {
		memory(dst, first)
		for k := range dst {
			dst[k] = math.Floor(dst[k]*share/4096) * 4096
		}
	}
}

// requestsPath answers how many requests the server has had.
const requestsPath = "/bench/requests"

// countRequests counts those of the query API.
func countRequests(next http.Handler) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == requestsPath {
			fmt.Fprint(w, n.Load())
			return
		}

		n.Add(1)
		next.ServeHTTP(w, r)
	})
}

// serveData is the Prometheus process: it prints its URL and serves until its standard input ends.
func serveData(ctx context.Context, dir string) error {
	server, err := promserver.Open(promserver.Options{Dir: dir, Middleware: countRequests})
	if err != nil {
		return err
	}

	fmt.Println(server.URL())
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()

	select {
	case <-ended:
	case <-ctx.Done():
	}

	return server.Close()
}
