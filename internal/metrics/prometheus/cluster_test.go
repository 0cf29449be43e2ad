// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/cost"
)

const gib = 1 << 30

// node adds the series of a node in kube-state-metrics. Two instances of it are scraped.
func (w *fixture) node(name string, cpu, memory float64, labels ...string) {
	for _, job := range []string{"a", "b"} {
		w.add(constant(1), "__name__", nodeInfoMetric, "node", name, "job", job)
		w.add(constant(cpu), "__name__", capacityMetric, "node", name, "resource", "cpu", "unit", "core", "job", job)
		w.add(constant(memory), "__name__", capacityMetric, "node", name, "resource", "memory", "unit", "byte", "job", job)
		w.add(constant(cpu-1), "__name__", allocatableMetric, "node", name, "resource", "cpu", "unit", "core", "job", job)

		if len(labels) > 0 {
			w.add(constant(1), append([]string{"__name__", nodeLabelsMetric, "node", name, "job", job}, labels...)...)
		}
	}
}

// pod adds a pod of StatefulSet db on a node.
func (w *fixture) pod(name, node string) {
	w.owned(podOwnerMetric, "shop", "pod", name, "StatefulSet", "db", constant(1))
	w.add(constant(1), "__name__", podInfoMetric, "namespace", "shop", "pod", name, "created_by_kind", "StatefulSet", "created_by_name", "db", "node", node)
	w.add(constant(1), "__name__", containerInfoMetric, "namespace", "shop", "pod", name, "container", "db")
}

func (w *fixture) asks(metric, pod, container, resource string, v float64) {
	w.add(constant(v), "__name__", metric, "namespace", "shop", "pod", pod, "container", container, "resource", resource)
}

func TestClusterOfMetrics(t *testing.T) {
	w := newFixture(today.Add(-10*time.Minute), today)
	w.node("n1", 4, 16*gib, "label_karpenter_sh_capacity_type", "spot", "label_kubernetes_io_hostname", "n1")
	w.node("n2", 8, 32*gib, "label_kubernetes_io_hostname", "n2")
	w.add(constant(2), "__name__", capacityMetric, "node", "n2", "resource", "nvidia_com_gpu", "unit", "integer")
	w.node("n3", 2, 4*gib)
	w.pod("db-0", "n1")
	w.pod("db-1", "")
	w.pod("db-2", "n2")
	w.add(constant(1), "__name__", phaseMetric, "namespace", "shop", "pod", "db-2", "phase", "Succeeded")

	w.add(constant(1), "__name__", initContainerInfoMetric, "namespace", "shop", "pod", "db-0", "container", "migrate")
	w.add(constant(1), "__name__", initContainerInfoMetric, "namespace", "shop", "pod", "db-0", "container", "mesh", "restart_policy", "Always")
	w.asks(requestsMetric, "db-0", "db", "cpu", 0.5)
	w.asks(requestsMetric, "db-0", "db", "memory", 2*gib)
	w.asks(requestsMetric, "db-0", "db", "nvidia_com_gpu", 1)
	w.asks(requestsMetric, "db-0", "db", "ephemeral_storage", 1e12)
	w.asks(initRequestsMetric, "db-0", "mesh", "cpu", 0.1)
	w.asks(initRequestsMetric, "db-0", "migrate", "cpu", 3)
	w.asks(limitsMetric, "db-0", "db", "cpu", 7)

	state := w.source(t, nil).ClusterState(nil)
	got, err := state.Cluster(t.Context(), []string{"karpenter.sh/capacity-type", "pool"})
	if err != nil {
		t.Fatal(err)
	}

	db := workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}
	want := workload.Cluster{
		Nodes: []cost.Node{
			{Name: "n1", Labels: map[string]string{"karpenter.sh/capacity-type": "spot"}, Size: cost.Amounts{CPU: 4000, Memory: 16 * gib}},
			{Name: "n2", Labels: map[string]string{}, Size: cost.Amounts{CPU: 8000, Memory: 32 * gib, GPU: 2}},
			{Name: "n3", Labels: map[string]string{}, Size: cost.Amounts{CPU: 2000, Memory: 4 * gib}},
		},
		Pods: []workload.Pod{
			// The init container requests more CPU than the containers that run after it.
			{Name: "db-0", Owner: db, Node: "n1", Requests: cost.Amounts{CPU: 3000, Memory: 2 * gib, GPU: 1}},
			{Name: "db-1", Owner: db},
		},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Cluster differs (-want +got):\n%s", diff)
	}
	if placed := got.Placement().PodsByNode(db); len(placed) != 1 || placed["n1"] != 1 {
		t.Errorf("PodsByNode(db) = %v, want 1 pod on n1", placed)
	}

	missing := strings.Join(state.MissingMetrics(), "\n")
	if !strings.Contains(missing, "labels of 1 of 3 nodes") || strings.Contains(missing, capacityMetric) {
		t.Errorf("MissingMetrics:\n%s\nwant the labels of 1 of 3 nodes, without %s", missing, capacityMetric)
	}
}

func TestClusterWithoutCapacity(t *testing.T) {
	w := newFixture(today.Add(-10*time.Minute), today)
	w.add(constant(3), "__name__", allocatableMetric, "node", "n1", "resource", "cpu")
	w.add(constant(1), "__name__", nodeInfoMetric, "node", "n2")
	w.pod("db-0", "n1")
	state := w.source(t, nil).ClusterState(nil)

	got, err := state.Cluster(t.Context(), []string{"pool"})
	if err != nil || len(got.Nodes) != 2 || got.Nodes[0].Size.CPU != 3000 || got.Nodes[1].Size != (cost.Amounts{}) {
		t.Errorf("Cluster: nodes %+v, %v, want 2, the first with 3 cores, the second of unknown size", got.Nodes, err)
	}
	if state.HasRequests() {
		t.Error("HasRequests() = true without exported requests, want false")
	}

	missing := strings.Join(state.MissingMetrics(), "\n")
	for _, want := range []string{capacityMetric, "labels of 2 of 2 nodes", requestsMetric} {
		if !strings.Contains(missing, want) {
			t.Errorf("MissingMetrics:\n%s\nwant %q in it", missing, want)
		}
	}

	empty := newFixture(today.Add(-10*time.Minute), today)
	empty.cpu("shop", "db-0", "db", constant(1))

	state = empty.source(t, nil).ClusterState(nil)
	if got, err = state.Cluster(t.Context(), nil); err != nil || len(got.Nodes)+len(got.Pods) != 0 {
		t.Errorf("Cluster without kube-state-metrics = %+v, %v, want no nodes and pods", got, err)
	}
	if missing := strings.Join(state.MissingMetrics(), "\n"); !strings.Contains(missing, containerInfoMetric) {
		t.Errorf("MissingMetrics:\n%s\nwant %s in it", missing, containerInfoMetric)
	}
}

func TestAutoscalersOfMetrics(t *testing.T) {
	w := newFixture(today.Add(-10*time.Minute), today)
	w.pod("db-0", "n1")
	scales := func(namespace, name, kind, target string) {
		w.add(constant(1), "__name__", autoscalerMetric, "namespace", namespace, "horizontalpodautoscaler", name,
			"scaletargetref_kind", kind, "scaletargetref_name", target, "scaletargetref_api_version", "apps/v1")
	}
	aims := func(namespace, name, metric, kind string, v float64) {
		w.add(constant(v), "__name__", autoscalerTargetMetric, "namespace", namespace, "horizontalpodautoscaler", name,
			"metric_name", metric, "metric_target_type", kind)
	}

	scales("shop", "web", "Deployment", "web")
	aims("shop", "web", "cpu", "utilization", 70)
	aims("shop", "web", "memory", "utilization", 80)
	scales("shop", "queue", "Deployment", "queue")
	aims("shop", "queue", "cpu", "value", 3)
	aims("shop", "queue", "messages", "average", 30)
	scales("other", "api", "Rollout", "api")
	aims("other", "api", "cpu", "utilization", 50)
	aims("other", "gone", "cpu", "utilization", 10)

	target := func(namespace, version, kind, name string) workload.Ref {
		return workload.Ref{Namespace: namespace, APIVersion: version, Kind: kind, Name: name}
	}

	web := metrics.Autoscaler{Name: "web", Target: target("shop", "apps/v1", "Deployment", "web"), CPU: 0.7, Memory: 0.8}
	api := metrics.Autoscaler{Name: "api", Target: target("other", "argoproj.io/v1alpha1", "Rollout", "api"), CPU: 0.5}
	s := w.source(t, nil)
	for _, c := range []struct {
		namespaces []string
		want       []metrics.Autoscaler
	}{{nil, []metrics.Autoscaler{api, web}}, {[]string{"shop"}, []metrics.Autoscaler{web}}} {
		got, err := s.ClusterState(c.namespaces).Autoscalers(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("Autoscalers of namespaces %v differ (-want +got):\n%s", c.namespaces, diff)
		}
	}

	none := newFixture(today.Add(-10*time.Minute), today)
	none.pod("db-0", "n1")

	state := none.source(t, nil).ClusterState(nil)
	if got, err := state.Autoscalers(t.Context()); err != nil || got != nil || !strings.Contains(strings.Join(state.MissingMetrics(), ""), autoscalerMetric) {
		t.Errorf("Autoscalers without metrics = %v, %v, missing %v, want none, and %s missing", got, err, state.MissingMetrics(), autoscalerMetric)
	}
}

// TestErrorsSayWhatFor checks that an error contains the query if the server rejected it, and the purpose of the
// query if the server did not respond.
func TestErrorsSayWhatFor(t *testing.T) {
	var answer http.HandlerFunc
	address, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { answer(w, r) })

	s := newSource(t, address, func(c *Config) { c.MaxAttempts = 1 })
	for _, c := range []struct {
		name       string
		answer     http.HandlerFunc
		want, lack string
	}{
		{"unavailable", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, "probing which metrics there are", "count by"},
		{"denied", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "probing which metrics there are", "count by"},
		{"refused", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"status":"error","errorType":"bad_data","error":"unknown function"}`)
		}, "instant query label_replace(count by", farBehind},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer = c.answer
			_, err := s.Probe(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), c.lack) || len(err.Error()) > 400 {
				t.Errorf("Probe: error of %d bytes: %v, want at most 400 with %q and without %q", len(err.Error()), err, c.want, c.lack)
			}
		})
	}
}

// farBehind is at the end of the query for all metrics, beyond the truncated part.
const farBehind = "node_memory_MemTotal_bytes"
