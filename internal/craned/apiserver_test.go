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

func (m *fakeAPIServer) stop() {
	select {
	case <-m.closing:
	default:
		close(m.closing)
		m.CloseClientConnections()
		m.Close()
	}
}

// config returns the configuration of a client that uses JSON, as this server does.
func (m *fakeAPIServer) config() *rest.Config {
	return &rest.Config{Host: m.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}
}

// configMaps answers lists, and watches without an event.
func (m *fakeAPIServer) configMaps(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		m.note("list")
		reply(w, http.StatusOK, map[string]any{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}})
		return
	}

	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		m.note("list")
		fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
	}

	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}

	select {
	case <-r.Context().Done():
	case <-m.closing:
	}
}

func (m *fakeAPIServer) putLease(w http.ResponseWriter, r *http.Request) {
	var next coordinationv1.Lease
	if err := json.NewDecoder(r.Body).Decode(&next); err != nil {
		replyError(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	if m.lease != nil && next.ResourceVersion != m.lease.ResourceVersion {
		replyError(w, http.StatusConflict, metav1.StatusReasonConflict)
		return
	}

	what := "renewed"
	switch holder := next.Spec.HolderIdentity; {
	case holder == nil || *holder == "":
		what = "released"
	case m.lease == nil || m.lease.Spec.HolderIdentity == nil || *m.lease.Spec.HolderIdentity != *holder:
		what = "elected"
	}

	m.keep(&next)
	if what != "renewed" {
		m.record = append(m.record, what)
	}

	reply(w, http.StatusOK, m.lease)
}

func (m *fakeAPIServer) keep(next *coordinationv1.Lease) {
	m.version++
	next.Kind = "Lease"
	next.APIVersion = "coordination.k8s.io/v1"
	next.ResourceVersion = strconv.Itoa(m.version)
	m.lease = next
}

// steal sets another holder of the lease.
func (m *fakeAPIServer) steal(thief string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	stolen := m.lease.DeepCopy()
	now := metav1.NowMicro()
	stolen.Spec.HolderIdentity = &thief
	stolen.Spec.RenewTime = &now
	m.keep(stolen)
}

func (m *fakeAPIServer) holder() string {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.lease == nil || m.lease.Spec.HolderIdentity == nil {
		return ""
	}

	return *m.lease.Spec.HolderIdentity
}

func (m *fakeAPIServer) note(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.record = append(m.record, what)
}

func (m *fakeAPIServer) noted() string {
	m.mu.Lock()
	defer m.mu.Unlock()

	return strings.Join(m.record, " ")
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
