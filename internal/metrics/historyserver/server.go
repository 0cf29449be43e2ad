// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package historyserver selects and opens the Prometheus server with the history, and discovers it in the cluster.
package historyserver

import (
	"fmt"
	"net/url"
	"os"
	"time"

	"crane.io/crane/internal/component/usererror"
	"crane.io/crane/internal/metrics/prometheus"
)

// Environment variables of flags, so that credentials are not visible on the command line.
const (
	EnvAddress  = "CRANE_PROMETHEUS_URL"
	EnvUsername = "CRANE_PROMETHEUS_USERNAME"
	EnvPassword = "CRANE_PROMETHEUS_PASSWORD"
	EnvToken    = "CRANE_PROMETHEUS_TOKEN"
)

// Server are the address and the credentials of Prometheus.
type Server struct {
	Address            string
	Username, Password string
	PasswordFile       string
	Token, TokenFile   string
	CAFile             string
	CertFile, KeyFile  string
	Insecure           bool
	Headers            []string
	Labels             string
	Concurrency        int
	Timeout            time.Duration

	// Now returns the current time; nil is time.Now.
	Now func() time.Time

	// Service is the service that is reached through the API server.
	Service string
	// Discovered is the server found by Discover, nil if the address is set.
	Discovered *DiscoveredServer
	// maxAttempts is the number of attempts of a request; 0 for the default.
	maxAttempts int
}

// NewServer returns settings with the default timeout and concurrency.
func NewServer() *Server {
	defaults := prometheus.DefaultConfig()
	return &Server{Concurrency: defaults.Concurrency, Timeout: defaults.Timeout}
}

// Complete reads unset flags from the environment. If a flag selects an authentication method, the other methods in
// the environment are ignored.
func (s *Server) Complete() {
	if s.Address == "" && s.Service == "" {
		s.Address = os.Getenv(EnvAddress)
	}

	if s.Username != "" || s.TokenFile != "" {
		if s.Username != "" && s.PasswordFile == "" {
			s.Password = os.Getenv(EnvPassword)
		}

		return
	}

	s.Token = os.Getenv(EnvToken)
	if s.Token == "" {
		s.Username = os.Getenv(EnvUsername)
		if s.PasswordFile == "" {
			s.Password = os.Getenv(EnvPassword)
		}
	}
}

// Name returns the address without the password, for messages.
func (s *Server) Name() string {
	if s.Discovered != nil {
		return "service " + s.Discovered.service.String()
	}

	u, err := url.Parse(s.Address)
	if err != nil {
		return "the server" // rejected by open
	}

	return u.Redacted()
}

// Open returns a source for the flags. It sends no request.
func (s *Server) Open() (*prometheus.Source, error) {
	cfg := prometheus.DefaultConfig()
	cfg.Address = s.Address
	if s.Discovered != nil {
		// The API server authenticates with the kubeconfig and does not forward other credentials.
		cfg.Address = s.Discovered.address
		cfg.Transport = s.Discovered.transport
		cfg.GetOnly = true
	} else {
		cfg.Username = s.Username
		cfg.Password = s.Password
		cfg.PasswordFile = s.PasswordFile
		cfg.BearerToken, cfg.BearerTokenFile = s.Token, s.TokenFile
		cfg.TLS = prometheus.TLSConfig{
			CAFile:             s.CAFile,
			CertFile:           s.CertFile,
			KeyFile:            s.KeyFile,
			InsecureSkipVerify: s.Insecure,
		}
	}

	cfg.Concurrency, cfg.Timeout = s.Concurrency, s.Timeout
	if s.Now != nil {
		cfg.Now = s.Now
	}

	if s.maxAttempts > 0 {
		cfg.MaxAttempts = s.maxAttempts
	}

	for _, h := range s.Headers {
		name, value, err := prometheus.ParseHeader(h)
		if err != nil {
			return nil, usererror.Invalid(fmt.Errorf("--prometheus-header: %w", err))
		}

		if cfg.Headers == nil {
			cfg.Headers = map[string]string{}
		}
		cfg.Headers[name] = value
	}

	matchers, err := prometheus.ParseMatchers(s.Labels)
	if err != nil {
		return nil, usererror.Invalid(fmt.Errorf("--prometheus-labels: %w", err))
	}

	cfg.Matchers = matchers
	source, err := prometheus.New(cfg)
	if err != nil {
		return nil, usererror.Invalid(err)
	}

	return source, nil
}
