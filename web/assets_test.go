// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, target string, header map[string]string) *http.Response {
	t.Helper()

	h, err := Handler()
	if err != nil {
		t.Fatal(err)
	}

	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	for k, v := range header {
		r.Header.Set(k, v)
	}

	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r io.Reader) string {
	t.Helper()

	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

// TestHandler_EveryPathOpensThePage checks that each path of the dashboard opens the page, also with dots in names, and that missing files are not the page.
func TestHandler_EveryPathOpensThePage(t *testing.T) {
	page := body(t, get(t, "/", nil).Body)
	if !strings.Contains(page, `<div id="app">`) {
		t.Fatalf("GET / = %s, want the page", page)
	}

	for _, target := range []string{"/overview", "/worklist?sort=saving", "/workload/shop/Deployment/web.v2", "/index.html"} {
		if got := get(t, target, nil); got.StatusCode != http.StatusOK || body(t, got.Body) != page {
			t.Errorf("GET %s: status %d, want 200 and the page", target, got.StatusCode)
		}
	}

	for _, target := range []string{"/main-OLDHASH.js", "/robots.txt"} {
		if got := get(t, target, nil); got.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", target, got.StatusCode)
		}
	}
}

// TestPageUsesOwnFiles checks that the page names files of the bundle alone and has no script or style of its own, which the policy forbids.
func TestPageUsesOwnFiles(t *testing.T) {
	page := body(t, get(t, "/", nil).Body)
	references := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(references) < 3 {
		t.Fatalf("the page refers to %v, want 3 files or more", references)
	}

	for _, ref := range references {
		if got := get(t, ref[1], nil); got.StatusCode != http.StatusOK || strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") {
			t.Errorf("GET %s: status %d, type %s, want 200 and no page", ref[1], got.StatusCode, got.Header.Get("Content-Type"))
		}
	}

	if regexp.MustCompile(`<style|<script(?:\s+[^>]*)?>[^<]|\sstyle=|\son\w+=`).MatchString(page) {
		t.Errorf("the page has inline code, want none: %s", page)
	}
}

// TestHandler_Caching checks the headers of caching, the compressed form, and that an unchanged file is not sent again.
func TestHandler_Caching(t *testing.T) {
	entries, err := fs.ReadDir(dist, "dist")
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range entries {
		plain := get(t, "/"+e.Name(), nil)
		zipped := get(t, "/"+e.Name(), map[string]string{"Accept-Encoding": "gzip"})
		z, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatalf("decompressing %s: %v", e.Name(), err)
		}

		if body(t, z) != body(t, plain.Body) {
			t.Errorf("%s: the compressed form differs, want the same content", e.Name())
		}
		if immutable := strings.Contains(plain.Header.Get("Cache-Control"), "immutable"); immutable != strings.Contains(e.Name(), "-") {
			t.Errorf("%s: Cache-Control %q, want immutable for names with a digest alone", e.Name(), plain.Header.Get("Cache-Control"))
		}

		again := get(t, "/"+e.Name(), map[string]string{"Accept-Encoding": "gzip", "If-None-Match": zipped.Header.Get("Etag")})
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: status %d with its tag, want 304", e.Name(), again.StatusCode)
		}
		if policy := plain.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "script-src 'self';") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q, want own scripts alone", e.Name(), policy)
		}
	}
}

func TestHandler_RefusesWrites(t *testing.T) {
	h, err := Handler()
	if err != nil {
		t.Fatal(err)
	}

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/overview", nil))

	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /overview: status %d, want 405", w.Code)
	}
}
