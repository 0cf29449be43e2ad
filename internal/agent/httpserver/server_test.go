// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()

	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}

	return resp.StatusCode, string(body)
}

func serve(t *testing.T, c Config) string {
	t.Helper()

	c.Address = "127.0.0.1:0"
	s, err := Listen(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("Run does not end within a minute, want it to end with its context")
		}
	})

	return "http://" + s.Address()
}

func TestPages(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "probe", Help: "a number"}, func() float64 { return 7 }))
	var sick atomic.Bool
	url := serve(t, Config{Gather: registry, Unready: func() []string { return nil }, Unhealthy: func() []string {
		if sick.Load() {
			return []string{"qos was not seen for 6m0s", "cluster was not seen for 7m0s"}
		}

		return nil
	}})

	for path, want := range map[string]string{"/health-check": "OK", "/healthz": "OK", "/readyz": "ok"} {
		if status, body := get(t, url+path); status != http.StatusOK || body != want {
			t.Errorf("GET %s = %d %q, want 200 %q", path, status, body, want)
		}
	}

	if status, body := get(t, url+"/metrics"); status != http.StatusOK || !strings.Contains(body, "probe 7") {
		t.Errorf("GET /metrics = %d %q, want 200 with the probe", status, body)
	}

	sick.Store(true)
	for _, path := range []string{"/health-check", "/healthz"} {
		if status, body := get(t, url+path); status != http.StatusInternalServerError || body != "qos was not seen for 6m0s\ncluster was not seen for 7m0s\n" {
			t.Errorf("GET %s of an unhealthy agent = %d %q, want 500 with both problems", path, status, body)
		}
	}

	for _, path := range []string{"/", "/debug/pprof/", "/debug/pprof/heap"} {
		if status, _ := get(t, url+path); status != http.StatusNotFound {
			t.Errorf("%s: %d, want it disabled", path, status)
		}
	}
}

func TestProfiling(t *testing.T) {
	fine := func() []string { return nil }
	url := serve(t, Config{Gather: prometheus.NewRegistry(), Unready: fine, Unhealthy: fine, Profiling: true})
	if status, body := get(t, url+"/debug/pprof/"); status != http.StatusOK || !strings.Contains(body, "goroutine") {
		t.Errorf("GET /debug/pprof/ = %d %q, want 200 with the profiles", status, body)
	}
}

func TestAddressTaken(t *testing.T) {
	s, err := Listen(t.Context(), Config{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	if _, err := Listen(t.Context(), Config{Address: s.Address()}); err == nil || !strings.Contains(err.Error(), "--bind-address") {
		t.Errorf("%v", err)
	}
}
