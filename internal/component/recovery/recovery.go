// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recovery turns a panic in the work for one request into an error of that request. A panic in a goroutine that nothing recovers ends
// the process, and with it the requests of all other clients.
package recovery

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"

	"k8s.io/klog/v2"
)

// PanicError is the error of a request whose work panicked. Its text is for clients, so the value of the panic is in the log alone.
type PanicError struct {
	// Value is the value of the panic.
	Value any
}

// Error implements error.
func (e *PanicError) Error() string {
	return "internal error: Crane has a defect in the code of this request; its log has the details"
}

// logPanic logs the value of a panic with the stack of the caller, and returns the error of the request.
func logPanic(ctx context.Context, value any) *PanicError {
	klog.FromContext(ctx).Error(nil, "recovered from a panic", "panic", value, "stack", string(debug.Stack()))
	return &PanicError{Value: value}
}

// Call calls run and returns its error. If run panics, the panic is logged with its stack and returned as a *PanicError. Each goroutine that
// works for a request does so within Call or Value.
func Call(ctx context.Context, run func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = logPanic(ctx, value)
		}
	}()

	return run()
}

// Value is Call for functions with a result, which is the zero value after a panic.
func Value[T any](ctx context.Context, run func() (T, error)) (T, error) {
	var out T
	err := Call(ctx, func() error {
		var err error
		out, err = run()
		return err
	})

	return out, err
}

// Handler returns a handler that logs panics of next and answers them with answer. A response that has begun cannot become an error: its
// connection is closed, so that the client sees that it is incomplete.
func Handler(next http.Handler, answer func(w http.ResponseWriter, r *http.Request, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tracked := &startedWriter{ResponseWriter: w}
		defer func() {
			value := recover()
			if value == nil {
				return
			}

			if aborted, ok := value.(error); ok && errors.Is(aborted, http.ErrAbortHandler) {
				panic(http.ErrAbortHandler) // The handler asks net/http to close the connection.
			}

			err := logPanic(r.Context(), value)
			if tracked.started {
				panic(http.ErrAbortHandler)
			}

			answer(w, r, err)
		}()

		next.ServeHTTP(tracked, r)
	})
}

// startedWriter records whether the response has begun.
type startedWriter struct {
	http.ResponseWriter
	started bool
}

// WriteHeader implements http.ResponseWriter.
func (w *startedWriter) WriteHeader(status int) {
	w.started = true
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *startedWriter) Write(p []byte) (int, error) {
	w.started = true
	return w.ResponseWriter.Write(p)
}

// Unwrap returns the original writer for http.ResponseController.
func (w *startedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
