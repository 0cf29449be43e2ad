// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// flow has counters of the API server for a FlowSchema.
type flow struct {
	level string
	// dispatched and rejected are requests, waited is the seconds that they spent in queues.
	dispatched, rejected, waited float64
}

// flows returns the counters of the API server's priority and fairness by FlowSchema.
func (f *tenants) flows(t *testing.T) map[string]flow {
	t.Helper()

	text := f.kubectl(t, "get", "--raw", "/metrics")
	out := map[string]flow{}
	schema := regexp.MustCompile(`\bflow_schema="([^"]*)"`)
	level := regexp.MustCompile(`\bpriority_level="([^"]*)"`)

	err := scanMetrics(strings.NewReader(text), func(name, labels string, v float64) {
		m := schema.FindStringSubmatch(labels)
		l := level.FindStringSubmatch(labels)
		if m == nil || l == nil {
			return
		}

		x := out[m[1]]
		x.level = l[1]
		switch name {
		case "apiserver_flowcontrol_dispatched_requests_total":
			x.dispatched += v
		case "apiserver_flowcontrol_rejected_requests_total":
			x.rejected += v
		case "apiserver_flowcontrol_request_wait_duration_seconds_sum":
			x.waited += v
		}

		out[m[1]] = x
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// logFlows prints what the API server dispatched since a reading of flows.
func (f *tenants) logFlows(t *testing.T, when string, before map[string]flow, d time.Duration) {
	t.Helper()

	after := f.flows(t)
	var out strings.Builder
	for _, schema := range slices.Sorted(maps.Keys(after)) {
		a := after[schema]
		b := before[schema]
		if n := a.dispatched - b.dispatched; n > 0 || a.rejected > b.rejected {
			fmt.Fprintf(&out, "\n%s (level %s): %.1f, %.1f ms, %.0f", schema, a.level, n/d.Seconds(), 1000*(a.waited-b.waited)/max(1, n), a.rejected-b.rejected)
		}
	}

	t.Logf("%s, FlowSchemas of the API server, with requests per second, wait of each in a queue and rejected requests:%s", when, out.String())
}

// cpuSeconds returns the CPU time of each process of the playground and of the whole machine.
func (f *tenants) cpuSeconds(t *testing.T) map[string]float64 {
	t.Helper()

	seconds := func(path string, fields ...int) float64 {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		line, _, _ := strings.Cut(string(text), "\n")
		all := strings.Fields(line[strings.LastIndex(line, ")")+1:])
		var sum float64
		for _, i := range fields {
			ticks, err := strconv.ParseFloat(all[i], 64)
			if err != nil {
				t.Fatal(err)
			}

			sum += ticks / 100 // USER_HZ
		}

		return sum
	}

	// user, nice, system, irq, softirq, and utime and stime after the name of the program.
	out := map[string]float64{"the machine": seconds("/proc/stat", 1, 2, 3, 6, 7)}
	for _, p := range processes(t, f.state) {
		program, _, _ := strings.Cut(p.line, " ")
		out[filepath.Base(program)] += seconds(fmt.Sprintf("/proc/%d/stat", p.pid), 11, 12)
	}

	return out
}

// controllers returns how long requests of craned's controllers waited and how long they took, on average, with their number.
func (f *tenants) controllers(t *testing.T) string {
	t.Helper()

	sums := map[string]float64{}
	names := []string{}
	label := regexp.MustCompile(`\bname="([^"]*)"`)

	f.scan(t, func(name, labels string, v float64) {
		m := label.FindStringSubmatch(labels)
		if m == nil {
			return
		}

		controller := m[1]
		if name == "workqueue_queue_duration_seconds_count" && v > 0 {
			names = append(names, controller)
		}

		sums[name+controller] += v
	})

	slices.Sort(names)
	var out strings.Builder
	for _, c := range slices.Compact(names) {
		n := sums["workqueue_queue_duration_seconds_count"+c]
		fmt.Fprintf(&out, "\n%s: %.3f, %.3f, %.0f", c, sums["workqueue_queue_duration_seconds_sum"+c]/n, sums["workqueue_work_duration_seconds_sum"+c]/n, n)
	}

	return out.String()
}

// figures are counters of craned.
type figures struct{ CPU, Memory, APIRequests, Queries float64 }

// read returns the counters of craned and of the proxy in front of Prometheus.
func (f *tenants) read(t *testing.T) figures {
	t.Helper()

	out := figures{Queries: float64(f.proxy.requests.Load())}
	f.scan(t, func(name, _ string, v float64) {
		switch name {
		case "process_cpu_seconds_total":
			out.CPU += v
		case "process_resident_memory_bytes":
			out.Memory += v
		case "rest_client_requests_total":
			out.APIRequests += v
		}
	})

	return out
}

// scan calls a function for each sample of craned's metrics.
func (f *tenants) scan(t *testing.T, use func(name, labels string, v float64)) {
	t.Helper()

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.metrics, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("craned does not serve its metrics: %v", err)
	}
	defer response.Body.Close()

	if err := scanMetrics(response.Body, use); err != nil {
		t.Fatal(err)
	}
}

// scanMetrics calls a function for each sample in the text format of Prometheus.
func scanMetrics(r io.Reader, use func(name, labels string, v float64)) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		series, number, _ := strings.Cut(lines.Text(), "} ")
		if number == "" {
			series, number, _ = strings.Cut(lines.Text(), " ")
		}

		name, labels, _ := strings.Cut(series, "{")
		if v, err := strconv.ParseFloat(number, 64); err == nil {
			use(name, labels, v)
		}
	}

	return lines.Err()
}

// printCosts prints what the most expensive object of each kind costs craned.
func (f *tenants) printCosts(t *testing.T) {
	t.Helper()

	f.namespace(t, "costs", worstTargets)
	costly := f.newTenant(t, "costs")
	f.await(t, settleTime)
	before := f.read(t)
	f.await(t, worstTime)

	idle := f.read(t)
	minutes := worstTime.Minutes()
	t.Logf("without objects, per minute: %.2f s CPU, %.0f API requests, %.0f queries; %.0f MiB",
		(idle.CPU-before.CPU)/minutes, (idle.APIRequests-before.APIRequests)/minutes, (idle.Queries-before.Queries)/minutes, idle.Memory/(1<<20))
	const namespace = "costs"
	t.Log("| kind | CPU | memory | API requests | queries of Prometheus |, for each object and, memory apart, minute")

	for _, kind := range tenantKinds() {
		start := f.read(t)
		for i := range worstCount {
			if err := costly.applyWorst(t.Context(), kind, namespace, i); err != nil {
				t.Fatalf("applying the worst %s: %v", kind, err)
			}
		}

		f.await(t, worstTime)
		end := f.read(t)
		per := func(from, to, idleFrom, idleTo float64) float64 {
			return ((to - from) - (idleTo - idleFrom)) / minutes / worstCount
		}
		t.Logf("| `%s` | %.3f s | %.2f MiB | %.1f | %.1f |", kind, per(start.CPU, end.CPU, before.CPU, idle.CPU), (end.Memory-start.Memory)/worstCount/(1<<20),
			per(start.APIRequests, end.APIRequests, before.APIRequests, idle.APIRequests), per(start.Queries, end.Queries, before.Queries, idle.Queries))
		f.kubectl(t, "delete", kind, "--all", "-n", namespace)
		f.await(t, settleTime)
	}
}

// await lets craned run for some time.
func (f *tenants) await(t *testing.T, d time.Duration) {
	t.Helper()

	select {
	case <-time.After(d):
	case <-f.done:
		t.Fatalf("the playground ended: %v", f.err)
	}
}
