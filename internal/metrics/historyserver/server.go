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

	// Service is the service that is reached through the API server.
	Service string
	// Discovered is the server found by discoverServer, nil if the address is set.
	Discovered *DiscoveredServer
	// maxAttempts is the number of attempts of a request; 0 for the default.
	maxAttempts int
}

func NewServer() *Server {
	defaults := prometheus.DefaultConfig()
	return &Server{Concurrency: defaults.Concurrency, Timeout: defaults.Timeout}
}

// Complete reads unset flags from the environment. If a flag selects an authentication method, the other methods in
// the environment are ignored.
func (p *Server) Complete() {
	if p.Address == "" && p.Service == "" {
		p.Address = os.Getenv(EnvAddress)
	}

	if p.Username != "" || p.TokenFile != "" {
		if p.Username != "" && p.PasswordFile == "" {
			p.Password = os.Getenv(EnvPassword)
		}

		return
	}

	p.Token = os.Getenv(EnvToken)
	if p.Token == "" {
		p.Username = os.Getenv(EnvUsername)
		if p.PasswordFile == "" {
			p.Password = os.Getenv(EnvPassword)
		}
	}
}

// Name returns the address without the password, for messages.
func (p *Server) Name() string {
	if p.Discovered != nil {
		return "service " + p.Discovered.service.String()
	}

	u, err := url.Parse(p.Address)
	if err != nil {
		return "the server" // rejected by open
	}

	return u.Redacted()
}

// Open returns a source for the flags. It sends no request.
func (p *Server) Open() (*prometheus.Source, error) {
	cfg := prometheus.DefaultConfig()
	cfg.Address = p.Address
	if p.Discovered != nil {
		// The API server authenticates with the kubeconfig and does not forward other credentials.
		cfg.Address = p.Discovered.address
		cfg.Transport = p.Discovered.transport
		cfg.GetOnly = true
	} else {
		cfg.Username = p.Username
		cfg.Password = p.Password
		cfg.PasswordFile = p.PasswordFile
		cfg.BearerToken, cfg.BearerTokenFile = p.Token, p.TokenFile
		cfg.TLS = prometheus.TLSConfig{
			CAFile:             p.CAFile,
			CertFile:           p.CertFile,
			KeyFile:            p.KeyFile,
			InsecureSkipVerify: p.Insecure,
		}
	}

	cfg.Concurrency, cfg.Timeout = p.Concurrency, p.Timeout
	if p.maxAttempts > 0 {
		cfg.MaxAttempts = p.maxAttempts
	}

	for _, h := range p.Headers {
		name, value, err := prometheus.ParseHeader(h)
		if err != nil {
			return nil, usererror.Invalid(fmt.Errorf("--prometheus-header: %w", err))
		}

		if cfg.Headers == nil {
			cfg.Headers = map[string]string{}
		}
		cfg.Headers[name] = value
	}

	matchers, err := prometheus.ParseMatchers(p.Labels)
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
