// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config says where the server is, how to be let in, and how much to ask of it at once.
type Config struct {
	// Address is the base URL, with a path prefix if the server has one: https://host/prometheus.
	Address string

	// Username and Password for basic authentication; or BearerToken; or BearerTokenFile, read again for each request.
	// At most one of the three.
	Username, Password string
	BearerToken        string
	BearerTokenFile    string
	TLS                TLSConfig
	// Transport carries the requests where it is not nil, with its own authentication and TLS, of which none may then be
	// given above: that of a Kubernetes client, to reach a service through the API server.
	Transport http.RoundTripper
	// GetOnly asks with GET alone, where POST would need the right to create.
	GetOnly bool
	// Headers are sent with each request, for example X-Scope-OrgID.
	Headers map[string]string
	// Params are added to each query, for example dedup=true for Thanos.
	Params map[string]string
	// Matchers are added to each selector, for example cluster="eu" where one server holds several clusters.
	Matchers []Matcher

	// Concurrency is the number of requests under way at once.
	Concurrency int
	// Timeout of one request, its answer included.
	Timeout time.Duration
	// KeepAlive is the period of TCP keep-alive probes.
	KeepAlive time.Duration
	// MaxPoints per series in one query; Prometheus refuses more than 11,000.
	MaxPoints int
	// MaxSamples that one query of usage may return. It bounds memory here and work there.
	MaxSamples int
	// MaxAttempts per request, the first included.
	MaxAttempts int

	// Now is the clock.
	Now func() time.Time
	// Jitter returns a number in [0, 1) that spreads retries.
	Jitter func() float64
}

// TLSConfig says whom to trust and who to be. Files are read again when they change.
type TLSConfig struct {
	CAFile, CertFile, KeyFile string
	ServerName                string
	InsecureSkipVerify        bool
}

// Limits of a configuration.
const (
	maxConcurrency = 256
	maxMaxSamples  = 50_000_000 // the default of Prometheus's --query.max-samples
	maxServerPoint = 11_000
)

// DefaultConfig has gocrane's defaults where it had one: concurrency 10, timeout 3m, keep-alive 60s, 11,000 points.
// 300,000 samples are a thousand containers for a day, 2 MiB here and some 10 MiB on the wire: small enough for a
// server that has other clients, and queries of fewer samples cost it more in all.
func DefaultConfig() Config {
	return Config{
		Concurrency: 10,
		Timeout:     3 * time.Minute,
		KeepAlive:   time.Minute,
		MaxPoints:   maxServerPoint,
		MaxSamples:  300_000,
		MaxAttempts: 5,
		Now:         time.Now,
		Jitter:      rand.Float64,
	}
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	_, addressErr := parseAddress(c.Address)
	errs := []error{addressErr, c.validateAccess(), c.validateExtras(), c.validateLimits()}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("prometheus configuration: %w", err)
	}
	return nil
}

func (c Config) validateAccess() error {
	ways := 0
	for _, set := range []bool{c.Username != "" || c.Password != "", c.BearerToken != "", c.BearerTokenFile != ""} {
		if set {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("authentication: want at most one of user name with password, bearer token, bearer token file")
	case c.Password != "" && c.Username == "":
		return errors.New("authentication: a password without a user name")
	case c.Transport != nil && (ways > 0 || c.TLS != TLSConfig{}):
		return errors.New("authentication: a transport that is given brings its own")
	case (c.TLS.CertFile == "") != (c.TLS.KeyFile == ""):
		return errors.New("TLS: a client certificate needs both its file and its key file")
	}
	return nil
}

// validateExtras checks what is added to each request.
func (c Config) validateExtras() error {
	var errs []error
	for name := range c.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Authorization", "Content-Type", "Content-Length", "Accept-Encoding", "Host", "":
			errs = append(errs, fmt.Errorf("header %q is set by the client itself", name))
		}
	}
	for name := range c.Params {
		switch name {
		case "query", "start", "end", "step", "time", "":
			errs = append(errs, fmt.Errorf("query parameter %q is set by the client itself", name))
		}
	}
	for _, m := range c.Matchers {
		errs = append(errs, m.Validate())
	}
	return errors.Join(errs...)
}

func (c Config) validateLimits() error {
	var errs []error
	within := func(what string, value, least, most int) {
		if value < least || value > most {
			errs = append(errs, fmt.Errorf("%s %d: want %d to %d", what, value, least, most))
		}
	}
	within("concurrency", c.Concurrency, 1, maxConcurrency)
	within("points per query", c.MaxPoints, 2, maxServerPoint)
	within("samples per query", c.MaxSamples, 1000, maxMaxSamples)
	within("attempts", c.MaxAttempts, 1, 100)
	if c.Timeout <= 0 || c.KeepAlive < 0 {
		errs = append(errs, fmt.Errorf("timeout %v and keep-alive %v: want more than 0, and 0 or more", c.Timeout, c.KeepAlive))
	}
	if c.Now == nil || c.Jitter == nil {
		errs = append(errs, errors.New("clock and jitter must be set"))
	}
	return errors.Join(errs...)
}

// parseAddress reads a base URL. Errors never repeat the address whole: it may hold a password.
func parseAddress(address string) (*url.URL, error) {
	if strings.TrimSpace(address) == "" {
		return nil, errors.New("address is empty: want for example http://prometheus.monitoring:9090")
	}
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil {
		var detail *url.Error
		if errors.As(err, &detail) {
			err = detail.Err
		}
		return nil, fmt.Errorf("address is not a URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("address %q: want a URL that begins with http:// or https://", u.Redacted())
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("address of %s: a base URL has no query; set query parameters apart", u.Host)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	// People paste the address of an endpoint; the base is what is before it.
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/api/v1/query"), "/api/v1")
	return u, nil
}
