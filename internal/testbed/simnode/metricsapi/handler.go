// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"crane.io/crane/internal/testbed/simnode/access"
	"crane.io/crane/internal/testbed/simnode/kubelet"
)

// The served group and version.
const (
	Group   = metrics.GroupName
	Version = "v1beta1"

	groupPath   = "/apis/" + Group
	versionPath = groupPath + "/" + Version
)

// window is the sampling window of the reported metrics.
const window = 30 * time.Second

// Source provides the samples.
type Source interface {
	// Nodes returns all nodes.
	Nodes() []kubelet.NodeState
	// Snapshot returns all running containers, those of a pod consecutively.
	Snapshot() []kubelet.ContainerState
}

// Handler serves the API behind the guard.
func Handler(guard *access.Guard, source Source) http.Handler {
	return guard.Protect(routes(source), need)
}

// routes maps paths to handlers.
func routes(source Source) http.Handler {
	s := &api{source: source}
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		mux.HandleFunc("GET "+path, serveOK)
	}

	mux.HandleFunc("GET /openapi/v2", serveOpenAPI)
	mux.HandleFunc("GET /apis", serveGroups)
	mux.HandleFunc("GET "+groupPath, func(w http.ResponseWriter, _ *http.Request) { reply(w, group()) })
	mux.HandleFunc("GET "+versionPath, func(w http.ResponseWriter, _ *http.Request) { reply(w, resources()) })
	mux.HandleFunc("GET "+versionPath+"/nodes", s.listNodes)
	mux.HandleFunc("GET "+versionPath+"/nodes/{name}", s.getNode)
	mux.HandleFunc("GET "+versionPath+"/pods", s.listPods)
	mux.HandleFunc("GET "+versionPath+"/namespaces/{namespace}/pods", s.listPods)
	mux.HandleFunc("GET "+versionPath+"/namespaces/{namespace}/pods/{name}", s.getPod)

	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, pattern := mux.Handler(req); pattern == "" {
			access.Fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
			return
		}

		mux.ServeHTTP(w, req)
	})
}

// need returns the right that a request needs: on the resource below the version's path, otherwise on the path.
func need(req *http.Request) []access.Right {
	verb := map[string]string{
		http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update",
		http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[req.Method]

	// The path is VERSION/KIND[/NAME] or VERSION/namespaces/NAMESPACE/KIND[/NAME].
	var ns, kind, name string
	if segments, ok := cutSegments(req.URL.Path, versionPath); ok {
		if len(segments) >= 3 && segments[0] == "namespaces" {
			ns = segments[1]
			segments = segments[2:]
		}

		kind = segments[0]
		if len(segments) > 1 {
			name = segments[1]
		}
	}

	if kind == "" {
		return []access.Right{{Path: &authorizationv1.NonResourceAttributes{Path: req.URL.Path, Verb: verb}}}
	}

	if verb == "get" && name == "" {
		verb = "list"
	}

	return []access.Right{{Resource: &authorizationv1.ResourceAttributes{
		Group:     Group,
		Version:   Version,
		Resource:  kind,
		Namespace: ns,
		Name:      name,
		Verb:      verb,
	}}}
}

type api struct{ source Source }

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// Write errors mean that the client has disconnected.
	_ = json.NewEncoder(w).Encode(v)
}

func badRequest(w http.ResponseWriter, err error) {
	access.Fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
}

func notFound(w http.ResponseWriter, kind, name string) {
	access.Fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s.%s %q not found", kind, Group, name))
}

// selector is the label and field selection of a list request.
type selector struct {
	labels labels.Selector
	fields fields.Selector
}

func selects(req *http.Request) (selector, error) {
	query := req.URL.Query()
	if query.Get("watch") == "true" || query.Get("watch") == "1" {
		return selector{}, fmt.Errorf("%s cannot be watched", Group)
	}

	l, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return selector{}, fmt.Errorf("labelSelector: %w", err)
	}

	f, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return selector{}, fmt.Errorf("fieldSelector: %w", err)
	}

	for _, r := range f.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return selector{}, fmt.Errorf("fieldSelector: field %q is not supported, metadata.name and metadata.namespace are", r.Field)
		}
	}

	return selector{l, f}, nil
}

func (s selector) matches(m metav1.ObjectMeta) bool {
	return s.labels.Matches(labels.Set(m.Labels)) && s.fields.Matches(fields.Set{"metadata.name": m.Name, "metadata.namespace": m.Namespace})
}

func (a *api) nodes() []metrics.NodeMetrics {
	var list []metrics.NodeMetrics
	for _, n := range a.source.Nodes() {
		if n.Reachable && n.Use.Known {
			list = append(list, metrics.NodeMetrics{
				TypeMeta:   metav1.TypeMeta{Kind: "NodeMetrics", APIVersion: Group + "/" + Version},
				ObjectMeta: metav1.ObjectMeta{Name: n.Spec.Name, Labels: n.Spec.AllLabels(), CreationTimestamp: metav1.NewTime(n.SampledAt)},
				Timestamp:  metav1.NewTime(n.SampledAt),
				Window:     metav1.Duration{Duration: window},
				Usage:      usage(n.Use),
			})
		}
	}

	return list
}

func usage(u kubelet.Use) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(u.CPU*1e9), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(u.Memory)>>10<<10, resource.BinarySI),
	}
}

func (a *api) listNodes(w http.ResponseWriter, req *http.Request) {
	want, err := selects(req)
	if err != nil {
		badRequest(w, err)
		return
	}

	list := metrics.NodeMetricsList{TypeMeta: metav1.TypeMeta{Kind: "NodeMetricsList", APIVersion: Group + "/" + Version}, Items: []metrics.NodeMetrics{}}
	for _, m := range a.nodes() {
		if want.matches(m.ObjectMeta) {
			list.Items = append(list.Items, m)
		}
	}

	reply(w, list)
}

func (a *api) getNode(w http.ResponseWriter, req *http.Request) {
	for _, m := range a.nodes() {
		if m.Name == req.PathValue("name") {
			reply(w, m)
			return
		}
	}

	notFound(w, "nodes", req.PathValue("name"))
}

// pods returns the pods whose running containers have all been sampled, like metrics-server.
func (a *api) pods(keep func(*corev1.Pod) bool) []metrics.PodMetrics {
	list := []metrics.PodMetrics{}
	all := a.source.Snapshot()
	for len(all) > 0 {
		pod := all[0].Pod
		n := 1
		for n < len(all) && all[n].Pod.UID == pod.UID {
			n++
		}

		// A pod without a sample of each running container would show too little.
		group := all[:n]
		all = all[n:]

		if !keep(pod) || slices.ContainsFunc(group, func(c kubelet.ContainerState) bool { return !c.Reachable || !c.Use.Known }) {
			continue
		}

		at := group[0].SampledAt
		m := metrics.PodMetrics{
			TypeMeta: metav1.TypeMeta{Kind: "PodMetrics", APIVersion: Group + "/" + Version},
			ObjectMeta: metav1.ObjectMeta{
				Name:              pod.Name,
				Namespace:         pod.Namespace,
				Labels:            pod.Labels,
				CreationTimestamp: metav1.NewTime(at),
			},
			Timestamp: metav1.NewTime(at),
			Window:    metav1.Duration{Duration: window},
		}

		for _, c := range group {
			m.Containers = append(m.Containers, metrics.ContainerMetrics{Name: c.Container, Usage: usage(c.Use)})
		}
		list = append(list, m)
	}

	slices.SortFunc(list, func(x, y metrics.PodMetrics) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})

	return list
}

func (a *api) listPods(w http.ResponseWriter, req *http.Request) {
	want, err := selects(req)
	if err != nil {
		badRequest(w, err)
		return
	}

	ns := req.PathValue("namespace")
	reply(w, metrics.PodMetricsList{
		TypeMeta: metav1.TypeMeta{Kind: "PodMetricsList", APIVersion: Group + "/" + Version},
		Items: a.pods(func(p *corev1.Pod) bool {
			return (ns == "" || p.Namespace == ns) && want.matches(p.ObjectMeta)
		}),
	})
}

func (a *api) getPod(w http.ResponseWriter, req *http.Request) {
	ns := req.PathValue("namespace")
	name := req.PathValue("name")
	list := a.pods(func(p *corev1.Pod) bool { return p.Namespace == ns && p.Name == name })
	if len(list) == 0 {
		notFound(w, "pods", ns+"/"+name)
		return
	}

	reply(w, list[0])
}

func serveOK(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("ok")) // as in reply
}
