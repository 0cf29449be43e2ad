// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package web serves the dashboard's page: the bundle of web/src that hack/webui writes to web/dist.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed dist
var dist embed.FS

// Page is the file that every path of the dashboard opens; the script in it reads the path.
const Page = "index.html"

// ContentSecurityPolicy allows the page its own scripts, styles and requests, and nothing of other origins.
const ContentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// asset is a file as it is sent.
type asset struct {
	plain, gzipped []byte
	contentType    string
	etag           string
	immutable      bool
}

// Handler serves the files of the bundle, and the page for each other path without an extension, so that links into the
// dashboard open it. Files whose names contain a hash are cached for a year, the page is revalidated.
func Handler() (http.Handler, error) {
	assets := map[string]asset{}
	entries, err := fs.ReadDir(dist, "dist")
	if err != nil {
		return nil, fmt.Errorf("reading the bundle: %w", err)
	}

	for _, e := range entries {
		content, err := dist.ReadFile("dist/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("reading %s of the bundle: %w", e.Name(), err)
		}

		a, err := newAsset(e.Name(), content)
		if err != nil {
			return nil, err
		}

		assets[e.Name()] = a
	}

	if _, ok := assets[Page]; !ok {
		return nil, fmt.Errorf("the bundle has no %s: run 'make web'", Page)
	}

	return handler(assets), nil
}

func newAsset(name string, content []byte) (asset, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return asset{}, fmt.Errorf("compressing %s: %w", name, err)
	}

	if _, err := w.Write(content); err != nil {
		return asset{}, fmt.Errorf("compressing %s: %w", name, err)
	}

	if err := w.Close(); err != nil {
		return asset{}, fmt.Errorf("compressing %s: %w", name, err)
	}

	sum := sha256.Sum256(content)
	return asset{
		plain:       content,
		gzipped:     b.Bytes(),
		contentType: mime.TypeByExtension(path.Ext(name)),
		etag:        `"` + hex.EncodeToString(sum[:12]) + `"`,
		immutable:   name != Page && strings.Contains(name, "-"),
	}, nil
}

func handler(assets map[string]asset) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the page is read with GET", http.StatusMethodNotAllowed)
			return
		}

		a, ok := assets[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok {
			// Names of objects contain dots, so only the top level is taken for a file.
			if name := strings.TrimPrefix(r.URL.Path, "/"); strings.Contains(name, ".") && !strings.Contains(name, "/") {
				http.NotFound(w, r)
				return
			}

			a = assets[Page]
		}

		a.serve(w, r)
	})
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Vary", "Accept-Encoding")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", ContentSecurityPolicy)
	h.Set("Cache-Control", "no-cache")

	if a.immutable {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}

	content := a.plain
	h.Set("Etag", a.etag)

	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		content = a.gzipped
		h.Set("Content-Encoding", "gzip")

		// Another representation has a tag of its own.
		h.Set("Etag", strings.TrimSuffix(a.etag, `"`)+`-gzip"`)
	}

	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}
