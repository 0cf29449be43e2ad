// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

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
	envAddress  = "CRANE_PROMETHEUS_URL"
	envUsername = "CRANE_PROMETHEUS_USERNAME"
	envPassword = "CRANE_PROMETHEUS_PASSWORD"
	envToken    = "CRANE_PROMETHEUS_TOKEN"
)

// prometheusFlags are the address and the credentials of Prometheus.
type prometheusFlags struct {
	address            string
	username, password string
	passwordFile       string
	token, tokenFile   string
	caFile             string
	certFile, keyFile  string
	insecure           bool
	headers            []string
	labels             string
	concurrency        int
	timeout            time.Duration

	// service is the service that is reached through the API server.
	service string
	// discovered is the server found by discoverServer, nil if the address is set.
	discovered *discoveredServer
	// maxAttempts is the number of attempts of a request; 0 for the default.
	maxAttempts int
}

func newPrometheusFlags() *prometheusFlags {
	defaults := prometheus.DefaultConfig()
	return &prometheusFlags{concurrency: defaults.Concurrency, timeout: defaults.Timeout}
}

// complete reads unset flags from the environment. If a flag selects an authentication method, the other methods in
// the environment are ignored.
func (p *prometheusFlags) complete() {
	if p.address == "" && p.service == "" {
		p.address = os.Getenv(envAddress)
	}

	if p.username != "" || p.tokenFile != "" {
		if p.username != "" && p.passwordFile == "" {
			p.password = os.Getenv(envPassword)
		}

		return
	}

	p.token = os.Getenv(envToken)
	if p.token == "" {
		p.username = os.Getenv(envUsername)
		if p.passwordFile == "" {
			p.password = os.Getenv(envPassword)
		}
	}
}

// serverName returns the address without the password, for messages.
func (p *prometheusFlags) serverName() string {
	if p.discovered != nil {
		return "service " + p.discovered.service.String()
	}

	u, err := url.Parse(p.address)
	if err != nil {
		return "the server" // rejected by open
	}

	return u.Redacted()
}

// open returns a source for the flags. It sends no request.
func (p *prometheusFlags) open() (*prometheus.Source, error) {
	cfg := prometheus.DefaultConfig()
	cfg.Address = p.address
	if p.discovered != nil {
		// The API server authenticates with the kubeconfig and does not forward other credentials.
		cfg.Address = p.discovered.address
		cfg.Transport = p.discovered.transport
		cfg.GetOnly = true
	} else {
		cfg.Username = p.username
		cfg.Password = p.password
		cfg.PasswordFile = p.passwordFile
		cfg.BearerToken, cfg.BearerTokenFile = p.token, p.tokenFile
		cfg.TLS = prometheus.TLSConfig{
			CAFile:             p.caFile,
			CertFile:           p.certFile,
			KeyFile:            p.keyFile,
			InsecureSkipVerify: p.insecure,
		}
	}

	cfg.Concurrency, cfg.Timeout = p.concurrency, p.timeout
	if p.maxAttempts > 0 {
		cfg.MaxAttempts = p.maxAttempts
	}

	for _, h := range p.headers {
		name, value, err := prometheus.ParseHeader(h)
		if err != nil {
			return nil, usererror.Invalid(fmt.Errorf("--prometheus-header: %w", err))
		}

		if cfg.Headers == nil {
			cfg.Headers = map[string]string{}
		}
		cfg.Headers[name] = value
	}

	matchers, err := prometheus.ParseMatchers(p.labels)
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
