// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// newLimitedServer serves a handler that reads the body and waits for release.
func newLimitedServer(t *testing.T, l *requestLimits, release <-chan struct{}) (*httptest.Server, <-chan error) {
	t.Helper()

	read := make(chan error, 100)
	server := httptest.NewServer(l.wrap(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, err := io.Copy(io.Discard, req.Body)
		read <- err

		select {
		case <-release:
		case <-req.Context().Done():
		}
	})))

	t.Cleanup(server.Close)
	return server, read
}

// post fails if there is no response in time, as for a request that must be refused and waits for release instead.
func post(t *testing.T, url string, body io.Reader) int {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}

	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()

	return res.StatusCode
}

// TestRequestLimits checks that a request is refused before it is decoded if it is large, of unknown length, or one too many.
func TestRequestLimits(t *testing.T) {
	release := make(chan struct{})
	l := &requestLimits{readTimeout: time.Minute, maxBody: 100, maxBytes: 150, maxRequests: 2}

	server, read := newLimitedServer(t, l, release)
	if got := post(t, server.URL, strings.NewReader(strings.Repeat("x", 101))); got != http.StatusRequestEntityTooLarge {
		t.Errorf("a POST of 101 bytes = %d, want %d", got, http.StatusRequestEntityTooLarge)
	}
	if got := post(t, server.URL, io.MultiReader(strings.NewReader("x"))); got != http.StatusLengthRequired {
		t.Errorf("a POST of unknown length = %d, want %d", got, http.StatusLengthRequired)
	}

	done := make(chan int, 2)
	hold := func(size int) {
		go func() { done <- post(t, server.URL, strings.NewReader(strings.Repeat("x", size))) }()
		if err := <-read; err != nil {
			t.Error(err)
		}
	}

	hold(100)
	if got := post(t, server.URL, strings.NewReader(strings.Repeat("x", 51))); got != http.StatusTooManyRequests {
		t.Errorf("a POST of more bytes than may be read at once = %d, want %d", got, http.StatusTooManyRequests)
	}

	hold(10)
	if got := post(t, server.URL, strings.NewReader("x")); got != http.StatusTooManyRequests {
		t.Errorf("more POSTs than may be served at once = %d, want %d", got, http.StatusTooManyRequests)
	}

	close(release)
	for range 2 {
		if got := <-done; got != http.StatusOK {
			t.Errorf("a POST that was held = %d, want %d", got, http.StatusOK)
		}
	}

	if got := post(t, server.URL, strings.NewReader(strings.Repeat("x", 100))); got != http.StatusOK {
		t.Errorf("a POST after the others = %d, want %d", got, http.StatusOK)
	}
}

// TestRequestLimits_SlowBody checks that a client which does not send its body in time loses its connection and its place.
func TestRequestLimits_SlowBody(t *testing.T) {
	release := make(chan struct{})
	close(release)

	server, read := newLimitedServer(t, &requestLimits{readTimeout: time.Second, maxBody: 100, maxBytes: 100, maxRequests: 1}, release)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	if _, err := fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"); err != nil {
		t.Fatal(err)
	}

	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}

	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("the answer to a slow client is %q, %v, want status 408", answer, err)
	}
	if got := post(t, server.URL, strings.NewReader("x")); got != http.StatusOK {
		t.Fatalf("a POST after a slow client = %d, want %d", got, http.StatusOK)
	}

	if err := <-read; err != nil {
		t.Error(err)
	}
}
