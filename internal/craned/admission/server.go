// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"crane.io/crane/internal/kube/certificates"
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

// Server serves webhooks on every replica, from before caches are filled until everything else has stopped. It runs the Rotator
// of its certificates, which it depends on.
type Server struct {
	ctrlwebhook.Server

	rotator *certificates.Rotator
}

// NewServer returns a server of endpoints.
func NewServer(o ServerOptions, endpoints []Endpoint) *Server {
	options := ctrlwebhook.Options{Host: o.Host, Port: o.Port, CertDir: o.CertDir}
	s := &Server{}
	minimum := func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }
	options.TLSOpts = []func(*tls.Config){minimum}
	if o.CertDir == "" {
		s.rotator = o.Rotator
		options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.GetCertificate = s.rotator.GetCertificate })
	}
	s.Server = ctrlwebhook.NewServer(options)
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
	var keeping sync.WaitGroup
	var kept error
	keeping.Go(func() {
		defer cancel() // Without certificates the server cannot serve.
		kept = s.rotator.Run(ctx)
	})
	err := s.serve(ctx)
	cancel()
	keeping.Wait()
	if err == nil && kept != nil {
		return fmt.Errorf("keeping certificates: %w", kept)
	}
	return err
}

func (s *Server) serve(ctx context.Context) error {
	if err := s.Server.Start(ctx); err != nil {
		return fmt.Errorf("serving webhooks: %w", err)
	}
	return nil
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
