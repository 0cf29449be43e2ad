// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// servePrometheusBehind opens a server on a copy of the shared history behind a proxy that calls before with each request, and
// returns the URL of the proxy.
func servePrometheusBehind(t *testing.T, before func(*http.Request)) string {
	t.Helper()

	prom, err := url.Parse(servePrometheus(t).URL())
	if err != nil {
		t.Fatal(err)
	}

	forward := httputil.NewSingleHostReverseProxy(prom)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A server detects a closed connection only after it has read the body.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}

		r.Body = io.NopCloser(bytes.NewReader(body))
		before(r)

		if r.Context().Err() == nil {
			forward.ServeHTTP(w, r)
		}
	}))

	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})

	return server.URL
}

// write writes a file in a temporary directory and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	return writeIn(t, t.TempDir(), name, text)
}

func writeIn(t *testing.T, dir, name, text string) string {
	t.Helper()

	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}
