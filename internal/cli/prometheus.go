// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"crane.io/crane/internal/metrics/prometheus"
)

// Environment variables that stand in for flags, so that secrets need not be on the command line.
const (
	envAddress  = "CRANE_PROMETHEUS_URL"
	envUsername = "CRANE_PROMETHEUS_USERNAME"
	envPassword = "CRANE_PROMETHEUS_PASSWORD"
	envToken    = "CRANE_PROMETHEUS_TOKEN"
)

// prometheusFlags say where Prometheus is and how to be let in.
type prometheusFlags struct {
	address            string
	username, password string
	token, tokenFile   string
	caFile             string
	certFile, keyFile  string
	insecure           bool
	headers            []string
	labels             string
	concurrency        int
	timeout            time.Duration

	// service is the one to reach through the API server.
	service string
	// found is what locate has found, nil where an address is given.
	found *found
	// attempts of a request; 0 for the default.
	attempts int
}

func newPrometheusFlags() *prometheusFlags {
	defaults := prometheus.DefaultConfig()
	return &prometheusFlags{concurrency: defaults.Concurrency, timeout: defaults.Timeout}
}

func (p *prometheusFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.address, "prometheus", "", "URL of Prometheus, or of Thanos, Mimir or VictoriaMetrics ($"+envAddress+"); looked for in the cluster where not given")
	fs.StringVar(&p.service, "prometheus-service", "", "service NAMESPACE/NAME[:PORT][/PATH] to reach through the API server (default: found by its labels)")
	fs.StringVar(&p.username, "prometheus-username", "", "user of basic authentication ($"+envUsername+")")
	fs.StringVar(&p.password, "prometheus-password", "", "password of basic authentication (better in $"+envPassword+")")
	fs.StringVar(&p.token, "prometheus-token", "", "bearer token (better in $"+envToken+")")
	fs.StringVar(&p.tokenFile, "prometheus-token-file", "", "file with the bearer token")
	fs.StringVar(&p.caFile, "prometheus-ca-file", "", "PEM file with authorities to trust beside the system's")
	fs.StringVar(&p.certFile, "prometheus-cert-file", "", "PEM file with a client certificate")
	fs.StringVar(&p.keyFile, "prometheus-key-file", "", "PEM file with the key of the client certificate")
	fs.BoolVar(&p.insecure, "prometheus-insecure-skip-verify", false, "do not check Prometheus's certificate")
	fs.StringArrayVar(&p.headers, "prometheus-header", nil, "header for each request, as 'Name: value'; may be repeated")
	fs.StringVar(&p.labels, "prometheus-labels", "", "label matchers for each query, as cluster=eu,tier=~a|b")
	fs.IntVar(&p.concurrency, "prometheus-concurrency", p.concurrency, "queries at once")
	fs.DurationVar(&p.timeout, "prometheus-timeout", p.timeout, "time for one query")
}

// complete takes from the environment what no flag says. A flag for another way of authentication keeps the
// environment's out, so that the two are not mixed.
func (p *prometheusFlags) complete() {
	if p.address == "" && p.service == "" {
		p.address = os.Getenv(envAddress)
	}
	if p.username != "" || p.token != "" || p.tokenFile != "" {
		if p.username != "" && p.password == "" {
			p.password = os.Getenv(envPassword)
		}
		return
	}
	p.token = os.Getenv(envToken)
	if p.token == "" {
		p.username, p.password = os.Getenv(envUsername), os.Getenv(envPassword)
	}
}

// server is the address without its password, for messages.
func (p *prometheusFlags) server() string {
	if p.found != nil {
		return "service " + p.found.service.String()
	}
	u, err := url.Parse(p.address)
	if err != nil {
		return "the server" // open has refused it
	}
	return u.Redacted()
}

// open makes a source of the flags. It sends nothing yet.
func (p *prometheusFlags) open() (*prometheus.Source, error) {
	cfg := prometheus.DefaultConfig()
	cfg.Address = p.address
	if p.found != nil {
		// The kubeconfig's credentials open this way; the API server does not hand others on.
		cfg.Address, cfg.Transport, cfg.GetOnly = p.found.address, p.found.transport, true
	} else {
		cfg.Username, cfg.Password = p.username, p.password
		cfg.BearerToken, cfg.BearerTokenFile = p.token, p.tokenFile
		cfg.TLS = prometheus.TLSConfig{CAFile: p.caFile, CertFile: p.certFile, KeyFile: p.keyFile, InsecureSkipVerify: p.insecure}
	}
	cfg.Concurrency, cfg.Timeout = p.concurrency, p.timeout
	if p.attempts > 0 {
		cfg.MaxAttempts = p.attempts
	}
	for _, h := range p.headers {
		name, value, found := strings.Cut(h, ":")
		if !found || strings.TrimSpace(name) == "" {
			return nil, usageError(fmt.Errorf("--prometheus-header %q: want 'Name: value'", name))
		}
		if cfg.Headers == nil {
			cfg.Headers = map[string]string{}
		}
		cfg.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	matchers, err := prometheus.ParseMatchers(p.labels)
	if err != nil {
		return nil, usageError(fmt.Errorf("--prometheus-labels: %w", err))
	}
	cfg.Matchers = matchers
	source, err := prometheus.New(cfg)
	if err != nil {
		return nil, usageError(err)
	}
	return source, nil
}
