// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

const thingDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  names: {kind: Thing, plural: things}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true}, {name: v1alpha1, served: false, storage: false}]
`

// fixture is an API server whose discovery, and then whose handler, has a kind some requests after it was established.
type fixture struct {
	discoveries, lists atomic.Int64
}

type object = map[string]any

func (f *fixture) groups() object {
	group := func(name string) object {
		version := object{"groupVersion": name + "/v1", "version": "v1"}
		return object{"name": name, "versions": []object{version}, "preferredVersion": version}
	}

	all := []object{group("apiextensions.k8s.io")}
	if f.discoveries.Add(1) > 3 {
		all = append(all, group("example.org"))
	}

	return object{"kind": "APIGroupList", "apiVersion": "v1", "groups": all}
}

func resources(gv, name, kind string) object {
	return object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": []object{
		{"name": name, "kind": kind, "namespaced": false, "verbs": []string{"get", "list", "patch"}},
	}}
}

func (f *fixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body object
	code := http.StatusOK
	switch r.URL.Path {
	case "/api":
		body = object{"kind": "APIVersions", "versions": []string{}}

	case "/apis":
		body = f.groups()

	case "/apis/apiextensions.k8s.io/v1":
		body = resources("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition")

	case "/apis/example.org/v1":
		body = resources("example.org/v1", "things", "Thing")

	case "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.org":
		crd, err := ParseString(thingDefinition)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}

		body = crd[0].Object
		body["status"] = object{"conditions": []object{{"type": "Established", "status": "True"}}}

	case "/apis/example.org/v1/things":
		body = object{"kind": "ThingList", "apiVersion": "example.org/v1", "items": []object{}}
		if f.lists.Add(1) <= 2 {
			code = http.StatusNotFound
			body = object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
		}

	default:
		code = http.StatusNotFound
		body = object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// TestApply_WaitsForDefinition checks that an object applied after its definition is found, and that its objects can be listed.
func TestApply_WaitsForDefinition(t *testing.T) {
	l := &fixture{}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)

	applier, err := NewApplier(&rest.Config{Host: server.URL, QPS: -1}, "test")
	if err != nil {
		t.Fatal(err)
	}

	crd, err := ParseString(thingDefinition)
	if err != nil {
		t.Fatal(err)
	}

	if err := applier.Apply(t.Context(), crd...); err != nil {
		t.Fatal(err)
	}

	if n := l.lists.Load(); n != 3 {
		t.Errorf("its objects were asked for %d times, want until they were there, 3", n)
	}
}
