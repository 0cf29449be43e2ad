// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// apiResource is a resource of a fakeCluster.
type apiResource struct {
	group, version, name, kind string
	global                     bool
}

func (r apiResource) groupVersion() string {
	if r.group == "" {
		return r.version
	}

	return r.group + "/" + r.version
}

func apiResources() []apiResource {
	return []apiResource{
		{group: "", version: "v1", name: "pods", kind: "Pod"},
		{group: "", version: "v1", name: "nodes", kind: "Node", global: true},
		{group: "", version: "v1", name: "namespaces", kind: "Namespace", global: true},
		{group: "", version: "v1", name: "events", kind: "Event"},
		{group: "", version: "v1", name: "configmaps", kind: "ConfigMap"},
		{group: "", version: "v1", name: "services", kind: "Service"},
		{group: "", version: "v1", name: "limitranges", kind: "LimitRange"},
		{group: "", version: "v1", name: "resourcequotas", kind: "ResourceQuota"},
		{group: "", version: "v1", name: "replicationcontrollers", kind: "ReplicationController"},
		{group: "apps", version: "v1", name: "deployments", kind: "Deployment"},
		{group: "apps", version: "v1", name: "statefulsets", kind: "StatefulSet"},
		{group: "apps", version: "v1", name: "daemonsets", kind: "DaemonSet"},
		{group: "apps", version: "v1", name: "replicasets", kind: "ReplicaSet"},
		{group: "batch", version: "v1", name: "jobs", kind: "Job"},
		{group: "batch", version: "v1", name: "cronjobs", kind: "CronJob"},
		{group: "autoscaling", version: "v2", name: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler"},
		{group: "policy", version: "v1", name: "poddisruptionbudgets", kind: "PodDisruptionBudget"},
		{group: "analysis.crane.io", version: "v1alpha1", name: "recommendations", kind: "Recommendation"},
		{group: "analysis.crane.io", version: "v1alpha1", name: "recommendationrules", kind: "RecommendationRule", global: true},
		{group: "analysis.crane.io", version: "v1alpha1", name: "analytics", kind: "Analytics"},
		{group: "autoscaling.crane.io", version: "v1alpha1", name: "effectivehorizontalpodautoscalers", kind: "EffectiveHorizontalPodAutoscaler"},
		{group: "autoscaling.crane.io", version: "v1alpha1", name: "effectiveverticalpodautoscalers", kind: "EffectiveVerticalPodAutoscaler"},
		{group: "prediction.crane.io", version: "v1alpha1", name: "timeseriespredictions", kind: "TimeSeriesPrediction"},
		{group: "prediction.crane.io", version: "v1alpha1", name: "clusternodepredictions", kind: "ClusterNodePrediction", global: true},
		{group: "topology.crane.io", version: "v1alpha1", name: "noderesourcetopologies", kind: "NodeResourceTopology", global: true},
	}
}

// fakeCluster is an API server that returns objects as they were written and stores nothing. Each token is the name of a person, who may do
// everything; the token "expired" is refused.
type fakeCluster struct {
	*httptest.Server
	objects []map[string]any
}

// newFakeCluster returns a cluster with objects, which are JSON.
func newFakeCluster(t testing.TB, objects ...string) *fakeCluster {
	t.Helper()

	f := &fakeCluster{}
	for _, text := range objects {
		var o map[string]any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber() // 64-bit integers stay as they are.

		if err := d.Decode(&o); err != nil {
			t.Fatalf("reading an object: %v: %s", err, text)
		}

		f.objects = append(f.objects, o)
	}

	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// kubeconfig returns the path of a kubeconfig of a user of the cluster.
func (f *fakeCluster) kubeconfig(t testing.TB) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "config")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"operator"}}]}`, f.URL)

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// ServeHTTP implements http.Handler.
func (f *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token == "expired" {
		sendStatus(w, http.StatusUnauthorized, "Unauthorized")
		return
	}

	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "api" {
		parts = append([]string{"apis", ""}, parts[1:]...) // The group without a name has a path of its own.
	}

	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":%q}}}`, token)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		fmt.Fprint(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","status":{"allowed":true}}`)
	case r.URL.Path == "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)

	case r.URL.Path == "/apis":
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":`+jsonOf(apiGroups())+`}`)
	case len(parts) == 2:
		f.serveGroup(w, parts[1])
	case len(parts) == 3:
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"`+strings.TrimPrefix(parts[1]+"/"+parts[2], "/")+`","resources":`+jsonOf(resourcesOf(parts[1], parts[2]))+`}`)
	default:
		f.serveObjects(w, r, parts[1], parts[2], parts[3:])
	}
}

func apiGroups() []map[string]any {
	out := []map[string]any{}
	seen := map[string]bool{"": true}
	for _, r := range apiResources() {
		if seen[r.group] {
			continue
		}

		seen[r.group] = true
		version := map[string]any{"groupVersion": r.groupVersion(), "version": r.version}
		out = append(out, map[string]any{"name": r.group, "versions": []any{version}, "preferredVersion": version})
	}

	return out
}

func resourcesOf(group, version string) []map[string]any {
	out := []map[string]any{}
	for _, r := range apiResources() {
		if r.group == group && r.version == version {
			out = append(out, map[string]any{
				"name": r.name, "singularName": strings.ToLower(r.kind), "kind": r.kind, "namespaced": !r.global,
				"verbs": []string{"get", "list", "patch", "create", "update", "delete"},
			})
		}
	}

	return out
}

func (f *fakeCluster) serveGroup(w http.ResponseWriter, name string) {
	for _, group := range apiGroups() {
		if group["name"] == name {
			group["kind"], group["apiVersion"] = "APIGroup", "v1"
			fmt.Fprint(w, jsonOf(group))
			return
		}
	}

	sendStatus(w, http.StatusNotFound, "NotFound")
}

// serveObjects serves the objects of a resource; path is what follows the version.
func (f *fakeCluster) serveObjects(w http.ResponseWriter, r *http.Request, group, version string, path []string) {
	namespace := ""
	if path[0] == "namespaces" && len(path) > 2 {
		namespace = path[1]
		path = path[2:]
	}

	all := apiResources()
	i := slices.IndexFunc(all, func(r apiResource) bool { return r.group == group && r.version == version && r.name == path[0] })
	if i < 0 {
		sendStatus(w, http.StatusNotFound, "NotFound")
		return
	}

	var found []any
	for _, o := range f.objects {
		meta, _ := o["metadata"].(map[string]any)
		if o["apiVersion"] != all[i].groupVersion() || o["kind"] != all[i].kind || namespace != "" && meta["namespace"] != namespace {
			continue
		}

		if len(path) == 1 || meta["name"] == path[1] {
			found = append(found, o)
		}
	}

	switch {
	case r.Method == http.MethodPost:
		_, _ = io.Copy(w, r.Body) // A created object.
	case len(path) == 1:
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":%s}`, all[i].kind+"List", all[i].groupVersion(), jsonOf(append([]any{}, found...)))
	case len(found) == 0:
		sendStatus(w, http.StatusNotFound, "NotFound")
	default:
		fmt.Fprint(w, jsonOf(found[0]))
	}
}

func sendStatus(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"%s"}`, reason, code, reason)
}

func jsonOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}

	return string(text)
}
