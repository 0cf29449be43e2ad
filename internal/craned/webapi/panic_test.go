// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestServe_Panic checks that a panic is answered without its value and counted, that the places of its request are free again, and that
// the API goes on.
func TestServe_Panic(t *testing.T) {
	const path = "/api/v1/prometheus/query"
	panics := func() {
		var none map[string][]int
		none["x"][0]++
	}

	f := setup(t)
	get := func() *httptest.ResponseRecorder { return f.get(t, "ann", path+"?query=up&time=1") }
	check := func(part string, requests int) {
		t.Helper()

		for i := range requests {
			w := get()
			_, problem := body(t, w)
			if w.Code != http.StatusInternalServerError || problem == "" || strings.Contains(problem, "nil map") {
				t.Fatalf("request %d with a panic in the %s: status %d, problem %q, want 500 without the panic", i, part, w.Code, problem)
			}
		}
	}

	// Unknown tokens are reviewed at a bounded rate.
	if w := get(); w.Code != http.StatusOK {
		t.Fatalf("a request before the panics: status %d, want %d", w.Code, http.StatusOK)
	}

	f.data.wait = func(context.Context) { panics() }
	check("handler", maxConcurrent+1)
	f.data.wait = nil

	if got := testutil.ToFloat64(f.requests.WithLabelValues(path, "failed")); got != maxConcurrent+1 {
		t.Errorf("requests that failed = %v, want %d", got, maxConcurrent+1)
	}

	f.gate.wait = panics
	check("authenticator", maxArrivals+1)
	f.gate.wait = nil

	if w := get(); w.Code != http.StatusOK {
		t.Errorf("a request after the panics: status %d, body %s, want 200", w.Code, w.Body)
	}
}
