// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// requestLimits bounds what clients can make the server hold before a request is decoded. The API server shows no certificate unless it is
// configured to, so that every client that reaches the port can send requests. All endpoints share the limits.
type requestLimits struct {
	// readTimeout bounds the time in which a body must have arrived.
	readTimeout time.Duration
	// maxBody is the maximum size of one body in bytes: an API server sends at most two versions of an object of at most 3 MiB.
	maxBody int64
	// maxBytes and maxRequests bound the bodies, in bytes, and the requests that are served at the same time.
	maxBytes, maxRequests int64

	bytes, requests atomic.Int64
}

// newRequestLimits returns the limits of craned: a fleet that creates a thousand pods a second, each decided in 10 ms, has ten requests of
// some 10 KiB at a time.
func newRequestLimits() *requestLimits {
	return &requestLimits{
		readTimeout: 5 * time.Second,
		maxBody:     7 << 20,
		maxBytes:    64 << 20,
		maxRequests: 128,
	}
}

// wrap returns a handler that answers 405 to other methods than POST, 408 to a body that does not arrive in time, 411 to one of unknown length, 413
// to a large one, and 429 while too much is being served.
func (l *requestLimits) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		status := 0
		switch {
		case req.Method != http.MethodPost:
			status = http.StatusMethodNotAllowed
		case req.ContentLength < 0:
			status = http.StatusLengthRequired
		case req.ContentLength > l.maxBody:
			status = http.StatusRequestEntityTooLarge
		}

		if status != 0 {
			http.Error(w, http.StatusText(status), status)
			return
		}

		// A request counts before its body is read, with the length that it announces.
		total := l.bytes.Add(req.ContentLength)
		requests := l.requests.Add(1)
		defer l.bytes.Add(-req.ContentLength)
		defer l.requests.Add(-1)

		if total > l.maxBytes || requests > l.maxRequests {
			http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
			return
		}

		body, err := l.read(w, req)
		if err != nil {
			w.Header().Set("Connection", "close")
			http.Error(w, http.StatusText(http.StatusRequestTimeout), http.StatusRequestTimeout)
			return
		}

		req.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, req)
	})
}

// read reads the body within the time limit. After an error the deadline stays, so that the server does not wait for the rest of the body;
// without one it is removed, because the server would cancel the context of the request at the deadline.
func (l *requestLimits) read(w http.ResponseWriter, req *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(l.readTimeout)); err != nil {
		return nil, fmt.Errorf("setting the deadline of a request: %w", err)
	}

	body := make([]byte, req.ContentLength)
	if _, err := io.ReadFull(req.Body, body); err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}

	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("removing the deadline of a request: %w", err)
	}

	return body, nil
}
