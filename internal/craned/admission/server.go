// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"crane.io/crane/internal/component/boundedserver"
	"crane.io/crane/internal/kube/certificates"
	"crane.io/crane/internal/kube/pki"
)

// ServerOptions are the address and the certificate of the webhook server.
type ServerOptions struct {
	// Host is the address to listen on, empty for all.
	Host string
	Port int
	// CertDir has the files tls.crt and tls.key; empty for the certificates of the Rotator.
	CertDir string
	Rotator *certificates.Rotator
	// Draining reports whether the server ends soon. From then on each connection is closed after its next response. Nil for never.
	Draining func() bool
}

const (
	// maxConnections bounds the connections of clients, of whom none is authenticated. An API server keeps a few.
	maxConnections = 256
	// maxCallTime exceeds the timeouts of the webhook configurations, of which Kubernetes permits 30 s at most.
	maxCallTime = 35 * time.Second
	// shutdownTime bounds the wait for running calls at the end.
	shutdownTime = time.Minute
)

// Server serves webhooks on every replica, from before caches are filled until everything else has stopped. It runs the Rotator
// of its certificates, which it depends on.
type Server struct {
	// Server counts and routes the calls. Its own listener, without bounds on connections and small headers, is not started.
	ctrlwebhook.Server

	mux     *http.ServeMux
	options ServerOptions
	rotator *certificates.Rotator
	// address is where it listens; nil before.
	address atomic.Pointer[string]
}

// NewServer returns a server of endpoints.
func NewServer(o ServerOptions, endpoints []Endpoint) *Server {
	mux := http.NewServeMux()
	s := &Server{Server: ctrlwebhook.NewServer(ctrlwebhook.Options{WebhookMux: mux}), mux: mux, options: o}
	if o.CertDir == "" {
		s.rotator = o.Rotator
	}

	limits := newRequestLimits()
	for _, e := range endpoints {
		handler := limits.wrap(e.webhook)
		if o.Draining != nil {
			handler = closeConnections(o.Draining, handler)
		}

		s.Register(e.Path, handler)
	}

	return s
}

// closeConnections returns a handler that asks the client to close the connection while draining returns true. The API server calls webhooks
// with HTTP/1.1, keeps connections to a pod that is no endpoint any more, and does not repeat a POST on a connection that the server closes
// in the same moment: without this, a call at the end of the process could fail.
func closeConnections(draining func() bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if draining() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, req)
	})
}

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	if s.rotator == nil {
		return s.serve(ctx)
	}

	// The manager starts webhooks with a context without its logger.
	ctx, cancel := context.WithCancel(log.IntoContext(ctx, log.FromContext(ctx)))
	var rotation sync.WaitGroup
	var rotationErr error
	rotation.Go(func() {
		defer cancel() // Without certificates the server cannot serve.

		rotationErr = s.rotator.Run(ctx)
	})

	err := s.serve(ctx)
	cancel()
	rotation.Wait()

	if err == nil && rotationErr != nil {
		return fmt.Errorf("keeping certificates: %w", rotationErr)
	}

	return err
}

func (s *Server) serve(ctx context.Context) error {
	// The certificate comes from the rotator, or from files that are followed.
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.rotator != nil {
		config.GetCertificate = s.rotator.GetCertificate
	} else {
		files, follow, err := pki.ServingConfig(s.options.CertDir)
		if err != nil {
			return fmt.Errorf("serving webhooks: %w", err)
		}

		config = files

		followCtx, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() {
			if err := follow(followCtx); err != nil {
				log.FromContext(ctx).Error(err, "following the certificate files of webhooks; the present certificate stays")
			}
		})
		defer running.Wait()
		defer stop()
	}

	listener, err := boundedserver.Listen(ctx, net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port)), maxConnections, config)
	if err != nil {
		return fmt.Errorf("serving webhooks: %w", err)
	}

	server := boundedserver.New(s.mux, maxCallTime)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	address := listener.Addr().String()
	s.address.Store(&address)

	select {
	case err := <-ended:
		return fmt.Errorf("serving webhooks: %w", err)
	case <-ctx.Done():
	}

	// Running calls may end: the API server waits for their answers.
	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()

	if err := server.Shutdown(shutdownCtx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping the server of webhooks: %w", err)
	}

	return nil
}

// StartedChecker implements the webhook server of controller-runtime: it fails while nothing listens.
func (s *Server) StartedChecker() healthz.Checker {
	return func(req *http.Request) error {
		address := s.address.Load()
		if address == nil {
			return errors.New("the server has not been started")
		}

		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // Only whether something listens.
		conn, err := dialer.DialContext(req.Context(), "tcp", *address)
		if err != nil {
			return fmt.Errorf("the server is not reachable: %w", err)
		}

		return conn.Close()
	}
}

// Check fails while the API server would not reach this server or not trust its certificate.
func (s *Server) Check(req *http.Request) error {
	if s.rotator != nil {
		if err := s.rotator.Check(); err != nil {
			return fmt.Errorf("webhooks: %w", err)
		}
	}

	if err := s.StartedChecker()(req); err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}

	return nil
}
