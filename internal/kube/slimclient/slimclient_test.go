// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package slimclient

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

var _ Interface = fake.NewClientset()

// TestNewForConfig checks that each client requests its own group, that all have the agent's name, and that they share the rate limit.
func TestNewForConfig(t *testing.T) {
	var mu sync.Mutex
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()

		paths = append(paths, r.URL.Path)
		if agent := r.UserAgent(); agent != "test/1" {
			t.Errorf("User-Agent %q, want test/1", agent)
		}

		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()

	limit := &countingLimiter{}
	c, err := NewForConfig(&rest.Config{Host: server.URL, UserAgent: "test/1", RateLimiter: limit})
	if err != nil {
		t.Fatal(err)
	}

	clients := []rest.Interface{
		c.AppsV1().RESTClient(), c.AuthenticationV1().RESTClient(), c.AuthorizationV1().RESTClient(), c.CoordinationV1().RESTClient(), c.CoreV1().RESTClient(),
	}
	for _, client := range clients {
		if err := client.Get().Resource("things").Do(t.Context()).Error(); err == nil {
			t.Error("getting a missing kind = nil, want an error")
		}
	}

	want := []string{
		"/apis/apps/v1/things", "/apis/authentication.k8s.io/v1/things", "/apis/authorization.k8s.io/v1/things", "/apis/coordination.k8s.io/v1/things", "/api/v1/things",
	}
	if !slices.Equal(paths, want) {
		t.Errorf("requests:\n%s\nwant:\n%s", strings.Join(paths, "\n"), strings.Join(want, "\n"))
	}
	if limit.waits != len(want) {
		t.Errorf("%d requests have waited for the rate limit, want %d", limit.waits, len(want))
	}

	one, err := NewForConfig(&rest.Config{Host: server.URL, QPS: 1, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}

	if one.CoreV1().RESTClient().GetRateLimiter() != one.AppsV1().RESTClient().GetRateLimiter() {
		t.Error("each group has a rate limit of its own, want a shared one")
	}
}

// countingLimiter lets every request pass.
type countingLimiter struct {
	flowcontrol.RateLimiter

	waits int
}

func (l *countingLimiter) Wait(context.Context) error { l.waits++; return nil }
func (*countingLimiter) TryAccept() bool              { return true }
