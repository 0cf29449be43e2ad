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
		s.Register(e.Path, limits.wrap(e.webhook))
	}
	return s
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
