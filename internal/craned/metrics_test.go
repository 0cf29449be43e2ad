// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestLimitRequests checks that few requests reach the API server at the same time, and that others wait and are served.
func TestLimitRequests(t *testing.T) {
	const bound, all = 3, 50
	var running, most, handled atomic.Int32
	handler := limitRequests(bound, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		now := running.Add(1)
		for last := most.Load(); now > last && !most.CompareAndSwap(last, now); last = most.Load() {
		}
		runtime.Gosched()
		running.Add(-1)
		handled.Add(1)
	}))

	var clients sync.WaitGroup
	for range all {
		clients.Go(func() {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
		})
	}

	clients.Wait()
	if n := most.Load(); n > bound || handled.Load() != all {
		t.Errorf("%d requests at the same time, want at most %d; %d of %d handled", n, bound, handled.Load(), all)
	}

	blocked := limitRequests(0, http.NotFoundHandler())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	blocked.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, http.MethodGet, "/metrics", http.NoBody)) // It returns.
}
