// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"crane.io/crane/internal/testbed/simnode/access"
	"crane.io/crane/internal/testbed/simnode/kubelet"
)

// Source is the node behind an endpoint.
type Source interface {
	State() kubelet.NodeState
	// Pods returns all pods of the node with their statuses.
	Pods() []*corev1.Pod
	// Containers returns the running containers.
	Containers() []kubelet.ContainerState
}

// Handler serves a node's endpoints behind the guard. A failed node responds with 503 to everything.
func Handler(guard *access.Guard, source Source) http.Handler {
	return guard.Protect(routes(source), func(req *http.Request) []access.Right { return need(req, source.State().Spec.Name) })
}

// routes maps paths to handlers.
func routes(source Source) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", serveOK)
	mux.HandleFunc("GET /healthz/{check}", serveOK)
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) { servePods(w, source) })
	mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) { serveConfig(w, source.State()) })
	mux.HandleFunc("GET /stats/summary", func(w http.ResponseWriter, _ *http.Request) { reply(w, summary(source)) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { serveText(w, kubeletMetrics(source)) })
	mux.HandleFunc("GET /metrics/resource", func(w http.ResponseWriter, _ *http.Request) { serveText(w, resourceMetrics(source)) })
	mux.HandleFunc("GET /metrics/cadvisor", func(w http.ResponseWriter, _ *http.Request) { serveText(w, cadvisorMetrics(source)) })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, req *http.Request) { serveLogs(w, req, source) })

	for _, path := range []string{"/exec/", "/attach/", "/portForward/", "/run/"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, req *http.Request) {
			http.Error(w, fmt.Sprintf("%s: the node is simulated, its containers have no process", req.URL.Path), http.StatusNotImplemented)
		})
	}

	// A failed node is unreachable for every client, also for those of existing connections.
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !source.State().Reachable {
			http.Error(w, "the simulated node has failed", http.StatusServiceUnavailable)
			return
		}

		mux.ServeHTTP(w, req)
	})
}

// need returns the rights on the node of which a request needs one, as in the kubelet: a subresource by path, and
// nodes/proxy for all.
func need(req *http.Request, node string) []access.Right {
	verb := map[string]string{
		http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update",
		http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[req.Method]

	sub := ""
	switch first, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/"); first {
	case "metrics", "stats", "pods", "healthz", "configz":
		sub = first
	}

	// The path of a subresource may also be read with nodes/proxy.
	right := func(sub string) access.Right {
		return access.Right{Resource: &authorizationv1.ResourceAttributes{
			Version:     "v1",
			Resource:    "nodes",
			Subresource: sub,
			Name:        node,
			Verb:        verb,
		}}
	}

	if sub == "" {
		return []access.Right{right("proxy")}
	}

	return []access.Right{right(sub), right("proxy")}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// Write errors mean that the client has disconnected.
	_ = json.NewEncoder(w).Encode(v)
}

func serveText(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text) // as in reply
}

func servePods(w http.ResponseWriter, source Source) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{}}
	for _, pod := range source.Pods() {
		list.Items = append(list.Items, *pod)
	}
	reply(w, list)
}

// serveConfig serves the part of a KubeletConfiguration that clients of /configz read.
func serveConfig(w http.ResponseWriter, state kubelet.NodeState) {
	capacity := state.Spec.Capacity()
	allocatable := state.Spec.Allocatable()

	policy := "none"
	if state.Spec.StaticCPU {
		policy = "static"
	}

	reserved := func(name corev1.ResourceName) string {
		total := capacity[name]
		remaining := allocatable[name]
		total.Sub(remaining)

		return total.String()
	}

	reply(w, map[string]any{"kubeletconfig": map[string]any{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"address": state.Address, "port": state.Port, "maxPods": capacity.Pods().Value(),
		"cgroupDriver": "systemd", "cpuManagerPolicy": policy, "topologyManagerPolicy": "none", "cpuCFSQuota": true,
		"cpuCFSQuotaPeriod": "100ms", "failSwapOn": true,
		"evictionHard":   map[string]string{"memory.available": "100Mi"},
		"systemReserved": map[string]string{"cpu": reserved(corev1.ResourceCPU), "memory": reserved(corev1.ResourceMemory)},
	}})
}

func serveLogs(w http.ResponseWriter, req *http.Request, source Source) {
	ns := req.PathValue("namespace")
	name := req.PathValue("pod")
	container := req.PathValue("container")
	for _, pod := range source.Pods() {
		if pod.Namespace != ns || pod.Name != name {
			continue
		}

		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for _, c := range list {
				if c.Name == container {
					_, _ = fmt.Fprintf(w, "container %s of pod %s/%s runs on simulated node %s: it has no process and writes no log\n",
						container, ns, name, pod.Spec.NodeName)
					return
				}
			}
		}
	}

	http.Error(w, fmt.Sprintf("container %q of pod %s/%s not found", container, ns, name), http.StatusNotFound)
}

func serveOK(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("ok")) // as in reply
}

// summary returns the content of /stats/summary: CPU and memory of the node, the pods and the containers.
func summary(source Source) *stats.Summary {
	state := source.State()
	out := &stats.Summary{Node: stats.NodeStats{NodeName: state.Spec.Name, StartTime: metav1.NewTime(state.StartedAt)}, Pods: []stats.PodStats{}}
	if state.Use.Known {
		out.Node.CPU = cpu(state.SampledAt, state.Use.CPU, state.CPUSeconds)
		out.Node.Memory = memory(state.SampledAt, state.Use.Memory)
		available := uint64(max(0, state.Spec.Memory.AsApproximateFloat64()-state.Use.Memory))
		out.Node.Memory.AvailableBytes = &available
	}

	// Only measured containers are included, so a pod's sums fit its containers.
	for _, g := range byPod(source.Containers()) {
		pod := g[0].Pod
		p := stats.PodStats{PodRef: stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}}
		if pod.Status.StartTime != nil {
			p.StartTime = *pod.Status.StartTime
		}

		var total kubelet.Use
		seconds := 0.0
		for _, c := range g {
			p.Containers = append(p.Containers, stats.ContainerStats{
				Name:      c.Container,
				StartTime: metav1.NewTime(c.StartedAt),
				CPU:       cpu(c.SampledAt, c.Use.CPU, c.CPUSeconds),
				Memory:    memory(c.SampledAt, c.Use.Memory),
			})

			total.CPU += c.Use.CPU
			total.Memory += c.Use.Memory
			seconds += c.CPUSeconds
		}

		p.CPU = cpu(g[0].SampledAt, total.CPU, seconds)
		p.Memory = memory(g[0].SampledAt, total.Memory)
		out.Pods = append(out.Pods, p)
	}

	return out
}

func cpu(at time.Time, cores, seconds float64) *stats.CPUStats {
	now := uint64(cores * 1e9)
	total := uint64(seconds * 1e9)
	return &stats.CPUStats{Time: metav1.NewTime(at), UsageNanoCores: &now, UsageCoreNanoSeconds: &total}
}

func memory(at time.Time, bytes float64) *stats.MemoryStats {
	v := uint64(bytes)
	return &stats.MemoryStats{
		Time:            metav1.NewTime(at),
		UsageBytes:      &v,
		WorkingSetBytes: &v,
		RSSBytes:        &v,
	}
}
