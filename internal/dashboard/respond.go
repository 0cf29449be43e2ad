// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"crane.io/crane/internal/dashboard/contract"
)

// minGzip is the size from which a response is compressed.
const minGzip = 2 << 10

// encoded is a response as it is sent.
type encoded struct {
	plain, gzipped []byte
	etag           string
}

func encode(value any) (encoded, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return encoded{}, fmt.Errorf("encoding the answer: %w", err)
	}

	sum := sha256.Sum256(plain)
	out := encoded{plain: plain, etag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
	// Compressing a short answer gains nothing.
	if len(plain) < minGzip {
		return out, nil
	}

	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}

	if err != nil {
		return encoded{}, fmt.Errorf("compressing the answer: %w", err)
	}

	out.gzipped = b.Bytes()
	return out, nil
}

// send writes a response, or 304 if the client has it.
func (e encoded) send(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("ETag", e.etag)
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Vary", "Accept-Encoding, Cookie")

	if r.Method == http.MethodGet && r.Header.Get("If-None-Match") == e.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}

	body := e.plain
	if e.gzipped != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = e.gzipped
	}

	h.Set("Content-Length", strconv.Itoa(len(body)))
	leavePlace(r.Context())
	_, _ = w.Write(body) // The client has disconnected.
}

// sendFailure writes an error.
func sendFailure(w http.ResponseWriter, err error) {
	failure := FailureOf(err)
	if failure.Body.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(failure.Body.RetryAfterSeconds))
	}

	sendJSON(w, failure.Status, contract.ErrorBody{Error: failure.Body})
}

// sendJSON writes a value with a status.
func sendJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
		return
	}

	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // The client has disconnected.
}
