// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	right := func(sub string) access.Right {
		return access.Right{Resource: &authorizationv1.ResourceAttributes{
			Version: "v1", Resource: "nodes", Subresource: sub, Name: node, Verb: verb,
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
	capacity, allocatable := state.Spec.Capacity(), state.Spec.Allocatable()
	policy := "none"
	if state.Spec.StaticCPU {
		policy = "static"
	}
	reserved := func(name corev1.ResourceName) string {
		total, rest := capacity[name], allocatable[name]
		total.Sub(rest)
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
	ns, name, container := req.PathValue("namespace"), req.PathValue("pod"), req.PathValue("container")
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
