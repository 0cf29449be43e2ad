// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestDrainingClosesConnections checks that a client keeps its connection until the server drains, and opens a new one for each request then.
func TestDrainingClosesConnections(t *testing.T) {
	var draining atomic.Bool
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(closeConnections(draining.Load, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{}")
	})))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	for i, step := range []struct {
		draining, close bool
		opened          int32
	}{{false, false, 1}, {false, false, 1}, {true, true, 1}, {true, true, 2}, {true, true, 3}} {
		draining.Store(step.draining)
		response, err := server.Client().Post(server.URL, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || string(body) != "{}" {
			t.Errorf("request %d: %q, %v", i, body, err)
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
		if response.Close != step.close || opened.Load() != step.opened {
			t.Errorf("request %d: close %t on connection %d, want %t and %d", i, response.Close, opened.Load(), step.close, step.opened)
		}
	}
}
