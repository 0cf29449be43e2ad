// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// write is a request of craned that changes an object, or tries to.
type write struct {
	verb, resource, name, subresource string
	dryRun                            bool
	code                              int
	// uid and generation are those of the object after a resize.
	uid        string
	generation int64
}

// refused reports whether the API server refused the object.
func (w write) refused() bool {
	return w.code == http.StatusForbidden || w.code == http.StatusUnprocessableEntity
}

// recorder records the writes of craned by namespace.
type recorder struct {
	// last is the time of the last write in nanoseconds, and running the number of those without an answer.
	last    atomic.Int64
	running atomic.Int64
	// evicting is called before an eviction; nil for none.
	evicting func(namespace, pod string)

	mu          sync.Mutex
	byNamespace map[string][]write
}

func newRecorder() *recorder { return &recorder{byNamespace: map[string][]write{}} }

// take returns the writes in a namespace since the last call.
func (r *recorder) take(namespace string) []write {
	r.mu.Lock()
	defer r.mu.Unlock()

	out := r.byNamespace[namespace]
	delete(r.byNamespace, namespace)
	return out
}

func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		namespace, w, ok := parseWrite(req)
		if !ok {
			return next.RoundTrip(req)
		}

		if w.subresource == "eviction" && r.evicting != nil {
			r.evicting(namespace, w.name)
		}

		r.running.Add(1)
		defer r.running.Add(-1)

		resp, err := next.RoundTrip(req)
		r.last.Store(time.Now().UnixNano())
		if err != nil {
			return resp, err
		}

		w.code = resp.StatusCode
		if w.subresource == "resize" {
			w.uid, w.generation = readIdentity(resp)
		}

		r.mu.Lock()
		defer r.mu.Unlock()

		r.byNamespace[namespace] = append(r.byNamespace[namespace], w)
		return resp, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// parseWrite returns what a request writes in which namespace. Events are not counted.
func parseWrite(req *http.Request) (namespace string, w write, ok bool) {
	_, path, found := strings.Cut(req.URL.Path, "/namespaces/")
	if req.Method == http.MethodGet || !found {
		return "", w, false
	}

	parts := append(strings.Split(path, "/"), "", "", "")
	w = write{
		verb:        req.Method,
		resource:    parts[1],
		name:        parts[2],
		subresource: parts[3],
		dryRun:      req.URL.Query().Has("dryRun"),
	}

	return parts[0], w, w.resource != "" && w.resource != "events"
}

// readIdentity returns the UID and the generation of the object in an answer, whose body it leaves as it was.
func readIdentity(resp *http.Response) (uid string, generation int64) {
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))

	var object struct {
		Metadata struct {
			UID        string
			Generation int64
		}
	}
	if err != nil || json.Unmarshal(body, &object) != nil {
		return "", 0
	}

	return object.Metadata.UID, object.Metadata.Generation
}
