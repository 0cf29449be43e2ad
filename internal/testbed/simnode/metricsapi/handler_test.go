// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"crane.io/crane/internal/testbed/simnode/kubelet"
)

type fixed struct {
	nodes      []kubelet.NodeState
	containers []kubelet.ContainerState
}

func (f fixed) Nodes() []kubelet.NodeState         { return f.nodes }
func (f fixed) Snapshot() []kubelet.ContainerState { return f.containers }

func source() fixed {
	at := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	container := func(ns, pod, name string, u kubelet.Use, reachable bool) kubelet.ContainerState {
		return kubelet.ContainerState{
			Container: name, Use: u, SampledAt: at, Reachable: reachable,
			Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: pod, UID: types.UID(ns + pod), Labels: map[string]string{"app": pod}}},
		}
	}

	known := kubelet.Use{CPU: 0.1234567891, Memory: 1<<20 + 5, Known: true}
	return fixed{
		nodes: []kubelet.NodeState{
			{Spec: kubelet.NodeSpec{Name: "n1", CPU: resource.MustParse("1")}, Use: known, SampledAt: at, Reachable: true},
			{Spec: kubelet.NodeSpec{Name: "failed"}, Use: known, SampledAt: at},
			{Spec: kubelet.NodeSpec{Name: "new"}, Reachable: true},
		},
		containers: []kubelet.ContainerState{
			container("b", "two", "app", known, true), container("b", "two", "side", known, true),
			container("a", "one", "app", known, true),
			container("a", "half", "app", known, true), container("a", "half", "side", kubelet.Use{}, true),
			container("a", "far", "app", known, false),
		},
	}
}

// request sends a request, bypassing the guard.
func request(t *testing.T, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()

	req := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}

	rec := httptest.NewRecorder()
	routes(source()).ServeHTTP(rec, req)
	return rec
}

func decode[T any](t *testing.T, rec *httptest.ResponseRecorder) T {
	t.Helper()

	var v T
	if err := json.Unmarshal(rec.Body.Bytes(), &v); err != nil || rec.Code != http.StatusOK {
		t.Fatalf("response %d %s, error %v; want 200 and valid JSON", rec.Code, rec.Body, err)
	}

	return v
}

func TestPodMetrics(t *testing.T) {
	for path, want := range map[string]string{
		"/pods": "a/one b/two", "/namespaces/a/pods": "a/one", "/namespaces/none/pods": "",
		"/pods?labelSelector=app%3Dtwo": "b/two", "/pods?labelSelector=app+notin+(two)": "a/one", "/pods?fieldSelector=metadata.name%3Done": "a/one",
	} {
		list := decode[metrics.PodMetricsList](t, request(t, versionPath+path))
		var names []string
		for _, p := range list.Items {
			names = append(names, p.Namespace+"/"+p.Name)
		}

		if got := strings.Join(names, " "); got != want {
			t.Errorf("pods of GET %s = %q, want %q", path, got, want)
		}
	}

	two := decode[metrics.PodMetrics](t, request(t, versionPath+"/namespaces/b/pods/two"))
	if len(two.Containers) != 2 || two.Containers[0].Usage.Cpu().String() != "123456789n" || two.Containers[1].Usage.Memory().String() != "1Mi" {
		t.Errorf("metrics of pod two = %+v, want two containers with 123456789n and 1Mi", two.Containers)
	}
}

func TestNodeMetrics(t *testing.T) {
	list := decode[metrics.NodeMetricsList](t, request(t, versionPath+"/nodes?labelSelector=kubernetes.io/os%3Dlinux"))
	if len(list.Items) != 1 || list.Items[0].Name != "n1" {
		t.Errorf("metrics of nodes = %+v, want n1 only, without failed and unmeasured ones", list.Items)
	}
	if got := decode[metrics.NodeMetrics](t, request(t, versionPath+"/nodes/n1")); got.Window.Duration != window {
		t.Errorf("metrics of n1 = %+v, want a window of %s", got, window)
	}
}

func TestBadRequests(t *testing.T) {
	for path, want := range map[string]int{
		"/nodes/failed": 404, "/namespaces/a/pods/none": 404, "/pods?labelSelector=(": 400, "/pods?watch=true": 400,
		"/nodes?fieldSelector=spec.x%3D1": 400, "/nodes?labelSelector=%3D%3D": 400, "/services": 404, "/namespaces/a/nodes": 404,
	} {
		rec := request(t, versionPath+path)
		var status metav1.Status
		if err := json.Unmarshal(rec.Body.Bytes(), &status); rec.Code != want || err != nil || status.Message == "" {
			t.Errorf("GET %s: status %d %s, want %d with a message", path, rec.Code, rec.Body, want)
		}
	}
}

func TestDiscovery(t *testing.T) {
	if got := decode[metav1.APIGroupList](t, request(t, "/apis")); len(got.Groups) != 1 || got.Groups[0].Name != Group {
		t.Errorf("GET /apis = %+v, want group %s", got, Group)
	}

	rec := request(t, "/apis", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
	if rec.Header().Get("Content-Type") != aggregatedType || !strings.Contains(rec.Body.String(), `"kind":"APIGroupDiscoveryList"`) {
		t.Errorf("GET /apis with aggregated discovery = %s %s, want type %s", rec.Header().Get("Content-Type"), rec.Body, aggregatedType)
	}

	rec = request(t, "/apis", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList")
	if !strings.Contains(rec.Body.String(), "APIGroupList") {
		t.Errorf("GET /apis with an older form of discovery = %s, want the plain list", rec.Body)
	}
	if got := decode[metav1.APIResourceList](t, request(t, versionPath)); len(got.APIResources) != 2 {
		t.Errorf("resources of the version = %+v, want nodes and pods", got)
	}
}

func TestNeed(t *testing.T) {
	for path, want := range map[string]string{
		versionPath + "/nodes": "list nodes//", versionPath + "/nodes/n": "get nodes//n", versionPath + "/namespaces/a/pods/x": "get pods/a/x",
		versionPath + "/namespaces/a/pods": "list pods/a/", "/healthz": "get /healthz", versionPath: "get " + versionPath, versionPath + "/": "get " + versionPath + "/",
	} {
		r := need(httptest.NewRequest(http.MethodGet, path, nil))[0]
		var got string
		if r.Resource != nil {
			got = r.Resource.Verb + " " + r.Resource.Resource + "/" + r.Resource.Namespace + "/" + r.Resource.Name
		} else {
			got = r.Path.Verb + " " + r.Path.Path
		}

		if got != want {
			t.Errorf("need(GET %s) = %q, want %q", path, got, want)
		}
	}
}

// Every reference in the description has a definition.
func TestOpenAPI(t *testing.T) {
	rec := request(t, "/openapi/v2")
	doc := decode[struct {
		Paths       map[string]any
		Definitions map[string]any
	}](t, rec)
	if len(doc.Paths) != 5 || len(doc.Definitions) != 5 {
		t.Errorf("GET /openapi/v2: %d paths, %d definitions; want 5 each", len(doc.Paths), len(doc.Definitions))
	}

	for _, part := range strings.Split(rec.Body.String(), `"$ref":"#/definitions/`)[1:] {
		if name, _, _ := strings.Cut(part, `"`); doc.Definitions[name] == nil {
			t.Errorf("GET /openapi/v2 has no definition %s, want one for each reference", name)
		}
	}
}
