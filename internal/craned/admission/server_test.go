// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/util/cert"
)

// TestServer_DrainingClosesConnections checks that a client keeps its connection until the server drains, and opens a new one for each request then.
func TestServer_DrainingClosesConnections(t *testing.T) {
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
			t.Errorf("request %d: body %q, %v, want {}", i, body, err)
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
		if response.Close != step.close || opened.Load() != step.opened {
			t.Errorf("request %d: close %t on connection %d, want %t and %d", i, response.Close, opened.Load(), step.close, step.opened)
		}
	}
}

// TestServer_Limits checks that the server of webhooks refuses large headers and does not offer HTTP/2, whose streams no bound on connections
// covers.
func TestServer_Limits(t *testing.T) {
	dir := t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600), os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)); err != nil {
		t.Fatal(err)
	}

	s := NewServer(ServerOptions{Host: "127.0.0.1", CertDir: dir}, nil)
	if err := s.Check(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)); err == nil {
		t.Error("Check before the server listens = nil, want an error")
	}

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()

	for s.address.Load() == nil {
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
			runtime.Gosched()
		}
	}

	if err := s.Check(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)); err != nil {
		t.Error(err)
	}

	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)

	for size, want := range map[int]int{8 << 10: http.StatusNotFound, 64 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+*s.address.Load()+"/none", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}

		request.Header.Set("A", strings.Repeat("a", size))
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Errorf("a request with %d bytes of headers: %v, want an answer", size, err)
			continue
		}

		response.Body.Close()
		if response.StatusCode != want || response.ProtoMajor != 1 {
			t.Errorf("%d bytes of headers: status %d, want %d, by %s", size, response.StatusCode, want, response.Proto)
		}
	}

	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
