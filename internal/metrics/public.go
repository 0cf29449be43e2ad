// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// PublicMessage returns the text of an error for readers of one namespace: in the status of their objects and in answers to their requests. Without a
// text of its own, an error has no address of a server that a connection failed to. The log has the whole error.
func PublicMessage(err error) string {
	if public := PublicError(nil); errors.As(err, &public) {
		return public.PublicMessage()
	}

	text := err.Error()
	for _, failure := range connectionErrors(err) {
		text = strings.ReplaceAll(text, failure.Error(), "the server cannot be reached"+causeOf(failure))
	}

	return text
}

// connectionErrors returns the outermost errors in a tree whose text has the address of a server.
func connectionErrors(err error) []error {
	switch e := err.(type) { //nolint:errorlint // The tree is walked here.
	case nil:
		return nil
	case *url.Error, *net.OpError, *net.DNSError:
		return []error{err}
	case interface{ Unwrap() []error }:
		var out []error
		for _, part := range e.Unwrap() {
			out = append(out, connectionErrors(part)...)
		}

		return out
	}

	return connectionErrors(errors.Unwrap(err))
}

// causeOf returns why a connection failed, after a colon; empty if the cause may name an address.
func causeOf(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return ": connection refused"
	case errors.Is(err, syscall.ECONNRESET):
		return ": connection reset"
	case errors.Is(err, context.Canceled):
		return ": canceled"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return ": no answer in time"
	}

	return ""
}
