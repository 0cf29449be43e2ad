// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// fakeAPIServer serves what a manager needs: one lease, ConfigMaps that do not change, and events. It adds the requests to the
// record of the test.
type fakeAPIServer struct {
	*httptest.Server
	closing chan struct{}

	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	record  []string
}

func newFakeAPIServer(t *testing.T) *fakeAPIServer {
	t.Helper()

	m := &fakeAPIServer{closing: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{
				{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}, {Name: "pods", Kind: "Pod", Namespaced: true}, {Name: "nodes", Kind: "Node"},
			},
		})
	})

	mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}})
	})
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}})
	})
	mux.HandleFunc("GET /api/v1/configmaps", m.configMaps)
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/events", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusCreated, map[string]any{"kind": "Event", "apiVersion": "v1", "metadata": map[string]any{"name": "e"}})
	})

	const leases = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
	mux.HandleFunc("POST "+leases, m.putLease)
	mux.HandleFunc("PUT "+leases+"/{name}", m.putLease)

	mux.HandleFunc("GET "+leases+"/{name}", func(w http.ResponseWriter, _ *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()

		if m.lease == nil {
			replyError(w, http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}

		reply(w, http.StatusOK, m.lease)
	})

	m.Server = httptest.NewServer(mux)
	t.Cleanup(m.stop)
	return m
}

func (f *fakeAPIServer) stop() {
	select {
	case <-f.closing:
	default:
		close(f.closing)
		f.CloseClientConnections()
		f.Close()
	}
}

// config returns the configuration of a client that uses JSON, as this server does.
func (f *fakeAPIServer) config() *rest.Config {
	return &rest.Config{Host: f.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}
}

// configMaps answers lists, and watches without an event.
func (f *fakeAPIServer) configMaps(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		f.note("list")
		reply(w, http.StatusOK, map[string]any{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}})
		return
	}

	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		f.note("list")
		fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
	}

	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush()
	}

	select {
	case <-r.Context().Done():
	case <-f.closing:
	}
}

func (f *fakeAPIServer) putLease(w http.ResponseWriter, r *http.Request) {
	var next coordinationv1.Lease
	if err := json.NewDecoder(r.Body).Decode(&next); err != nil {
		replyError(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	if f.lease != nil && next.ResourceVersion != f.lease.ResourceVersion {
		replyError(w, http.StatusConflict, metav1.StatusReasonConflict)
		return
	}

	what := "renewed"
	switch holder := next.Spec.HolderIdentity; {
	case holder == nil || *holder == "":
		what = "released"
	case f.lease == nil || f.lease.Spec.HolderIdentity == nil || *f.lease.Spec.HolderIdentity != *holder:
		what = "elected"
	}

	f.keep(&next)
	if what != "renewed" {
		f.record = append(f.record, what)
	}

	reply(w, http.StatusOK, f.lease)
}

func (f *fakeAPIServer) keep(next *coordinationv1.Lease) {
	f.version++
	next.Kind = "Lease"
	next.APIVersion = "coordination.k8s.io/v1"
	next.ResourceVersion = strconv.Itoa(f.version)
	f.lease = next
}

// steal sets another holder of the lease.
func (f *fakeAPIServer) steal(thief string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	stolen := f.lease.DeepCopy()
	now := metav1.NowMicro()
	stolen.Spec.HolderIdentity = &thief
	stolen.Spec.RenewTime = &now
	f.keep(stolen)
}

func (f *fakeAPIServer) holder() string {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.lease == nil || f.lease.Spec.HolderIdentity == nil {
		return ""
	}

	return *f.lease.Spec.HolderIdentity
}

func (f *fakeAPIServer) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.record = append(f.record, what)
}

func (f *fakeAPIServer) noted() string {
	f.mu.Lock()
	defer f.mu.Unlock()

	return strings.Join(f.record, " ")
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func replyError(w http.ResponseWriter, status int, reason metav1.StatusReason) {
	reply(w, status, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(status),
	})
}
