// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package boundedserver serves HTTP with bounds on the memory and the connections that clients take before they are authenticated.
package boundedserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// headerTimeout bounds the TLS handshake and, separately, the reading of the headers of a request.
	headerTimeout = 5 * time.Second
	// idleTimeout is how long a connection may wait for its next request. Go's clients close idle connections after 90 s: a server that closes
	// first may do so while a request arrives, and a POST is not repeated.
	idleTimeout = 100 * time.Second
	// maxHeaderBytes is the maximum size of a request line with its headers, to which net/http adds 4 KiB.
	maxHeaderBytes = 16 << 10
)

// New returns a server of HTTP/1.1, whose bounds hold for each connection. requestTimeout bounds the reading of a body and the writing of a
// response, each from the end of the headers; it must exceed the time of the slowest handler. While the handler runs, and answerTime after
// it, the connection is kept; a server that keeps it for a part of that time replaces Handler and calls Keep.
func New(handler http.Handler, requestTimeout time.Duration) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           keeping(handler),
		Protocols:         protocols,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		ConnContext:       withConn,
		ConnState:         release,
	}
}

// Listen returns a TCP listener with at most the given number of open connections. A further one takes the place of the one that waits longest,
// or waits if requests of all are being served. config is the configuration of TLS; nil for none.
func Listen(ctx context.Context, address string, connections int, config *tls.Config) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}

	listener = newLimitListener(listener, connections)
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"http/1.1"}

		// Outermost, because http.Server bounds the handshake of a *tls.Conn alone.
		listener = tls.NewListener(listener, config)
	}

	return listener, nil
}
