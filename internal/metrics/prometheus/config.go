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

// Config configures the address, authentication and limits of a Source.
type Config struct {
	// Address is the base URL, with a path prefix if the server has one: https://host/prometheus.
	Address string

	// Username with Password or PasswordFile selects basic authentication, BearerToken a token, and BearerTokenFile a file with a token. At
	// most one of the three may be set. Files are read again for each request.
	Username, Password string
	PasswordFile       string
	BearerToken        string
	BearerTokenFile    string
	TLS                TLSConfig
	// Transport sends the requests if it is not nil, with its own authentication and TLS; the fields above must then be empty. The transport
	// of a Kubernetes client reaches a service through the API server.
	Transport http.RoundTripper
	// GetOnly disables POST, which requires permission to create through an API server.
	GetOnly bool
	// Headers are sent with each request, for example X-Scope-OrgID.
	Headers map[string]string
	// HeadersFile is a file with further headers, one `Name: value` a line, that is read again for each request. It overrides
	// Headers. Empty for none.
	HeadersFile string
	// Params are added to each query, for example dedup=true for Thanos.
	Params map[string]string
	// Matchers are added to each selector, for example cluster="eu" where one server holds several clusters.
	Matchers []Matcher

	// Concurrency is the maximum number of concurrent requests.
	Concurrency int
	// Timeout of one request, including the response.
	Timeout time.Duration
	// KeepAlive is the period of TCP keep-alive probes.
	KeepAlive time.Duration
	// MaxPoints per series in one query; Prometheus rejects more than 11,000.
	MaxPoints int
	// MaxSamples that one usage query may return. It bounds the memory of the client and the work of the server.
	MaxSamples int
	// MaxAttempts per request, the first included.
	MaxAttempts int

	// Now returns the current time.
	Now func() time.Time
	// Jitter returns a number in [0, 1) that spreads retries.
	Jitter func() float64
}

// TLSConfig configures trusted authorities and the client certificate. Files are read again when they change.
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

// DefaultConfig returns gocrane's defaults: concurrency 10, timeout 3m, keep-alive 60s, 11,000 points. 300,000 samples, for which gocrane
// has no default, are a thousand containers for a day, 2 MiB in memory and about 10 MiB on the wire: small enough for a server with other
// clients, while queries of fewer samples have a higher total cost.
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

// Validate returns an error that describes every invalid field.
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
	for _, set := range []bool{c.Username != "" || c.Password != "" || c.PasswordFile != "", c.BearerToken != "", c.BearerTokenFile != ""} {
		if set {
			ways++
		}
	}

	switch {
	case ways > 1:
		return errors.New("authentication: set at most one of user name with password, bearer token, bearer token file")
	case c.Password != "" && c.PasswordFile != "":
		return errors.New("authentication: set at most one of password and password file")
	case (c.Password != "" || c.PasswordFile != "") && c.Username == "":
		return errors.New("authentication: a password without a user name")
	case c.Transport != nil && (ways > 0 || c.TLS != TLSConfig{}):
		return errors.New("authentication: a custom transport has its own")
	case (c.TLS.CertFile == "") != (c.TLS.KeyFile == ""):
		return errors.New("TLS: a client certificate needs both its file and its key file")
	}

	return nil
}

// validateExtras checks the additions to each request.
func (c Config) validateExtras() error {
	var errs []error
	for name := range c.Headers {
		errs = append(errs, checkHeaderName(name))
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
	checkRange := func(setting string, value, minimum, maximum int) {
		if value < minimum || value > maximum {
			errs = append(errs, fmt.Errorf("%s %d: must be %d to %d", setting, value, minimum, maximum))
		}
	}

	checkRange("concurrency", c.Concurrency, 1, maxConcurrency)
	checkRange("points per query", c.MaxPoints, 2, maxServerPoint)
	checkRange("samples per query", c.MaxSamples, 1000, maxMaxSamples)
	checkRange("attempts", c.MaxAttempts, 1, 100)

	if c.Timeout <= 0 || c.KeepAlive < 0 {
		errs = append(errs, fmt.Errorf("timeout %v and keep-alive %v: must be more than 0, and 0 or more", c.Timeout, c.KeepAlive))
	}
	if c.Now == nil || c.Jitter == nil {
		errs = append(errs, errors.New("clock and jitter must be set"))
	}

	return errors.Join(errs...)
}

// parseAddress parses a base URL. Errors never contain the whole address, which may contain a password.
func parseAddress(address string) (*url.URL, error) {
	if strings.TrimSpace(address) == "" {
		return nil, errors.New("address is empty: set for example http://prometheus.monitoring:9090")
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
		return nil, fmt.Errorf("address %q: must be a URL that begins with http:// or https://", u.Redacted())
	}

	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("address of %s: a base URL has no query; set query parameters separately", u.Host)
	}

	u.Path = strings.TrimSuffix(u.Path, "/")
	// Users paste the address of an endpoint; remove its path.
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/api/v1/query"), "/api/v1")

	return u, nil
}
