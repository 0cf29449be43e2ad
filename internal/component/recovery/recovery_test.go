// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"crane.io/crane/internal/component/recovery"
)

// logged returns a context whose log is written to the builder.
func logged(t *testing.T, to *strings.Builder) context.Context {
	t.Helper()

	return logr.NewContext(t.Context(), funcr.New(func(_, line string) { to.WriteString(line) }, funcr.Options{}))
}

func indexOutOfRange() error {
	var none []string
	i := len(none)

	return errors.New(none[i])
}

// TestCall checks that a panic becomes an error without its value, which is in the log with the stack, and that other results pass.
func TestCall(t *testing.T) {
	var log strings.Builder
	ctx := logged(t, &log)
	err := recovery.Call(ctx, indexOutOfRange)

	var panicked *recovery.PanicError
	if !errors.As(err, &panicked) || strings.Contains(err.Error(), "index out of range") {
		t.Errorf("Call of a function that panics = %v, want a *PanicError without the value of the panic", err)
	}
	if got := log.String(); !strings.Contains(got, "index out of range") || !strings.Contains(got, "indexOutOfRange") {
		t.Errorf("the log of a panic is %q, want its value and its stack", got)
	}

	cause := errors.New("no route to host")
	if err := recovery.Call(ctx, func() error { return cause }); !errors.Is(err, cause) {
		t.Errorf("Call of a function that fails = %v, want %v", err, cause)
	}
	if got, err := recovery.Value(ctx, func() (int, error) { return 3, nil }); got != 3 || err != nil {
		t.Errorf("Value of a function that returns 3 = %d, %v, want 3", got, err)
	}
}

// TestHandler checks that a panic before the response is answered, that a later one closes the connection, and that the server goes on.
func TestHandler(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/early", func(http.ResponseWriter, *http.Request) { _ = indexOutOfRange() })
	mux.HandleFunc("/late", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat("x", 1<<16)))
		_ = indexOutOfRange()
	})
	mux.HandleFunc("/fine", func(http.ResponseWriter, *http.Request) {})

	server := httptest.NewServer(recovery.Handler(mux, func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}))
	defer server.Close()

	get := func(path string) (int, error) {
		t.Helper()

		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}

		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatalf("GET %s: %v", path, err)
		}
		defer response.Body.Close()

		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}

	if status, err := get("/early"); status != http.StatusInternalServerError || err != nil {
		t.Errorf("GET /early: status %d, %v, want 500", status, err)
	}
	if status, err := get("/late"); err == nil {
		t.Errorf("GET /late: status %d and a whole body, want a broken connection", status)
	}
	if status, err := get("/fine"); status != http.StatusOK || err != nil {
		t.Errorf("GET /fine after the panics: status %d, %v, want 200", status, err)
	}
}
