// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/testbed/promserver"
)

// exporter collects two days of series of cAdvisor and kube-state-metrics.
type exporter struct {
	namespace string
	series    []promserver.Series
}

func (e *exporter) add(value func(i int) float64, pairs ...string) {
	e.series = append(e.series, promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, at int) {
		for i := range dst {
			dst[i] = value(at + i)
		}
	}})
}

func (e *exporter) constant(metric string, value float64, pairs ...string) {
	e.add(func(int) float64 { return value }, append([]string{"__name__", metric}, pairs...)...)
}

// pod adds a pod of a workload with one container that uses 0.2 cores and 300 MiB.
func (e *exporter) pod(kind, owner, pod, node string) {
	e.add(func(i int) float64 { return float64(i) * scrape.Seconds() * 0.2 },
		"__name__", "container_cpu_usage_seconds_total", "namespace", e.namespace, "pod", pod, "container", "app")
	e.constant("container_memory_working_set_bytes", 300*mib, "namespace", e.namespace, "pod", pod, "container", "app")
	e.constant("kube_pod_owner", 1, "namespace", e.namespace, "pod", pod, "owner_kind", kind, "owner_name", owner, "owner_is_controller", "true")
	e.constant("kube_pod_info", 1, "namespace", e.namespace, "pod", pod, "created_by_kind", kind, "created_by_name", owner, "node", node)
	e.constant("kube_pod_container_info", 1, "namespace", e.namespace, "pod", pod, "container", "app")
}

func (e *exporter) requests(pod string, cores, bytes float64) {
	e.constant("kube_pod_container_resource_requests", cores, "namespace", e.namespace, "pod", pod, "container", "app", "resource", "cpu", "unit", "core")
	e.constant("kube_pod_container_resource_requests", bytes, "namespace", e.namespace, "pod", pod, "container", "app", "resource", "memory", "unit", "byte")
}

func (e *exporter) node(name string, pairs ...string) {
	e.constant("kube_node_info", 1, "node", name)
	e.constant("kube_node_labels", 1, append([]string{"node", name}, pairs...)...)

	for _, metric := range []string{"kube_node_status_capacity", "kube_node_status_allocatable"} {
		e.constant(metric, 4, "node", name, "resource", "cpu", "unit", "core")
		e.constant(metric, 16*1024*mib, "node", name, "resource", "memory", "unit", "byte")
	}
}

// serve opens a Prometheus with the collected series.
func (e *exporter) serve(t *testing.T) *prometheus {
	t.Helper()

	now := time.Now().Truncate(scrape)
	dir := t.TempDir()
	grid := promserver.Grid{Start: now.Add(-48 * time.Hour), End: now.Add(time.Hour), Step: scrape}
	if _, err := promserver.WriteBlocks(t.Context(), dir, grid, e.series); err != nil {
		t.Fatal(err)
	}

	return servePrometheus(t, dir)
}

// recommended is the compared part of the output.
type recommended struct {
	Workloads []struct {
		Kind, Name string
		Replicas   int
		Saving     struct {
			Monthly    float64
			PricedFrom string
		}
		Containers []struct {
			CPU struct {
				Flags                []struct{ Code string }
				Current, Recommended struct{ Request struct{ Quantity string } }
			}
		}
	}
	Prices  struct{ Note string }
	Sources struct {
		History, Workloads, Nodes, Autoscalers string
		Missing                                []string
	}
}

// TestMetricsOnly: without the Kubernetes API everything is read from kube-state-metrics, and the output states that.
func TestMetricsOnly(t *testing.T) {
	e := &exporter{namespace: "shop"}
	e.pod("StatefulSet", "db", "db-0", "cheap")
	e.requests("db-0", 2, 1024*mib)
	e.pod("StatefulSet", "db2", "db2-0", "dear")
	e.requests("db2-0", 2, 1024*mib)
	e.pod("StatefulSet", "scaled", "scaled-0", "dear")
	e.requests("scaled-0", 2, 1024*mib)

	e.node("cheap", "label_karpenter_sh_capacity_type", "spot")
	e.node("dear", "label_kubernetes_io_hostname", "dear")
	e.constant("kube_horizontalpodautoscaler_info", 1, "namespace", "shop", "horizontalpodautoscaler", "h",
		"scaletargetref_kind", "StatefulSet", "scaletargetref_name", "scaled", "scaletargetref_api_version", "apps/v1")
	e.constant("kube_horizontalpodautoscaler_spec_target_metric", 70, "namespace", "shop", "horizontalpodautoscaler", "h",
		"metric_name", "cpu", "metric_target_type", "utilization")
	server := e.serve(t)

	out, errOut, code := crane(t, "recommend", "--prometheus", server.URL(), "--no-cache", "--history", "1d", "-o", "json")
	if code != 0 || strings.Contains(out, `\u00`) {
		t.Fatalf("crane recommend: exit %d, want 0: %s\n%s", code, errOut, out)
	}

	var r recommended
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}

	if len(r.Workloads) != 3 || r.Prices.Note != "" || len(r.Sources.Missing) > 0 {
		t.Fatalf("report %+v, want three workloads and nothing missing", r)
	}

	if s := r.Sources; s.History != server.URL() || s.Workloads != "kube-state-metrics" || s.Nodes != s.Workloads || s.Autoscalers != s.Workloads {
		t.Errorf("sources %+v, want kube-state-metrics for all", s)
	}

	byName := map[string]int{}
	for i, w := range r.Workloads {
		byName[w.Name] = i
		if w.Saving.PricedFrom != "nodes of its pods" || w.Containers[0].CPU.Current.Request.Quantity != "2" {
			t.Errorf("workload %s is %+v, want 2 CPUs priced from its nodes", w.Name, w)
		}
	}

	spot := r.Workloads[byName["db"]].Saving.Monthly
	demand := r.Workloads[byName["db2"]].Saving.Monthly
	if !(spot > 0 && demand > 4*spot && demand < 6*spot) {
		t.Errorf("on a spot node it saves %v, on demand %v, want a factor of about 4.75 as in the default book", spot, demand)
	}

	cpu := r.Workloads[byName["scaled"]].Containers[0].CPU
	if cpu.Recommended.Request.Quantity != "2" || len(cpu.Flags) == 0 || cpu.Flags[0].Code != "autoscaled" {
		t.Errorf("the autoscaled request is %+v, want 2 with a flag", cpu)
	}

	out, errOut, code = crane(t, "recommend", "--prometheus", server.URL(), "--no-cache", "--history", "1d")
	if code != 0 || !strings.Contains(out, "nodes from kube-state-metrics; autoscalers from kube-state-metrics.") || strings.Contains(out, "Missing") {
		t.Errorf("crane recommend: exit %d, want 0 and its sources: %s\n%s", code, errOut, out)
	}

	out, errOut, code = crane(t, "cost", "--prometheus", server.URL(), "--by", "node")
	if code != 0 || !strings.Contains(out, "spot") || !strings.Contains(out, "kube-state-metrics") {
		t.Errorf("crane cost: exit %d, want 0 with spot nodes: %s\n%s", code, errOut, out)
	}
}

// TestMetricsThatLack: metrics missing from kube-state-metrics are reported, and comparisons with them are omitted.
func TestMetricsThatLack(t *testing.T) {
	e := &exporter{namespace: "shop"}
	e.pod("StatefulSet", "db", "db-0", "n1")
	server := e.serve(t)

	args := []string{"recommend", "--prometheus", server.URL(), "--no-cache", "--history", "1d"}
	out, errOut, code := crane(t, args...)
	if code != 0 {
		t.Fatalf("crane recommend: exit %d, want 0: %s", code, errOut)
	}

	for _, metric := range []string{
		"kube_pod_container_resource_requests", "kube_node_status_capacity", "kube_node_status_allocatable", "kube_horizontalpodautoscaler_info", "there are no nodes",
	} {
		if !strings.Contains(out, metric) {
			t.Errorf("the output lacks a missing metric, want %s:\n%s", metric, out)
		}
	}

	for _, more := range [][]string{{"--fail-on", "missing"}, {"--only", "over"}} {
		_, errOut, code = crane(t, append(slices.Clone(args), more...)...)
		if code != 1 || !strings.Contains(errOut, "which are unknown") {
			t.Errorf("%v: exit %d, want 1 because requests are unknown: %s", more, code, errOut)
		}
	}

	bare := &exporter{namespace: "shop"}
	bare.constant("container_memory_working_set_bytes", 300*mib, "namespace", "shop", "pod", "db-0", "container", "app")

	out, errOut, code = crane(t, "recommend", "--prometheus", bare.serve(t).URL(), "--no-cache", "--history", "1d")
	if code != 3 || out != "" || !strings.Contains(errOut, "kube_pod_container_info") {
		t.Errorf("without kube-state-metrics: exit %d, %q, %s, want 3 and the missing metric", code, out, errOut)
	}
}

// TestNamespaceWithoutWorkloads: the reason is reported, and no table is printed.
func TestNamespaceWithoutWorkloads(t *testing.T) {
	e := &exporter{namespace: "shop"}
	e.pod("StatefulSet", "db", "db-0", "n1")
	server := e.serve(t)
	namespace(t, "deserted")

	kubeconfig := []string{"--kubeconfig", control.Kubeconfig()}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no such namespace", append(kubeconfig, "-n", "nope"), "namespace nope does not exist"},
		{"nothing in it", append(kubeconfig, "-n", "deserted"), "namespace deserted has no workload"},
		{"both", append(kubeconfig, "-n", "deserted,nope"), "namespace deserted has no workload; namespace nope does not exist"},
		{"by metrics", []string{"-n", "nope"}, "kube-state-metrics reports no pod in namespace nope"},
		{"explained", append(kubeconfig, "-n", "nope", "--explain", "web"), "namespace nope does not exist"},
	} {
		out, errOut, code := crane(t, append([]string{"recommend", "--prometheus", server.URL(), "--no-cache"}, c.args...)...)
		if code != 3 || out != "" || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: exit %d, %q, %s, want 3 and %q", c.name, code, out, errOut, c.want)
		}
	}

	out, errOut, code := crane(t, "recommend", "--prometheus", server.URL(), "--no-cache", "--history", "1d", "-n", "nope,shop")
	if code != 0 || !strings.Contains(errOut, "Warning: kube-state-metrics reports no pod in namespace nope") || !strings.Contains(out, "StatefulSet/db") {
		t.Errorf("one of two: exit %d, want 0 with a warning: %s\n%s", code, errOut, out)
	}

	out, _, code = crane(t, "recommend", "--prometheus", server.URL(), "--no-cache", "-n", "nope", "-o", "json")
	var r map[string]any
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 3 || !slices.Contains(slices.Collect(maps.Keys(r)), "sources") {
		t.Errorf("JSON: exit %d, %v, want 3 and the sources: %s", code, err, out)
	}
}
