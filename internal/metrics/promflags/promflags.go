// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promflags defines the flags for the address of Prometheus and the access to it, shared by all binaries.
package promflags

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/metrics/prometheus"
)

// Environment variables with credentials.
const (
	envUsername = "CRANE_PROMETHEUS_USERNAME"
	envPassword = "CRANE_PROMETHEUS_PASSWORD"
	envToken    = "CRANE_PROMETHEUS_TOKEN"
)

// Options configure access to Prometheus. Names and defaults of flags are gocrane's.
type Options struct {
	Address         string
	Username        string
	Password        string
	PasswordFile    string
	BearerToken     string
	BearerTokenFile string
	// Headers are sent with each request, each as "Name: value". HeadersFile is a file with one a line.
	Headers            []string
	HeadersFile        string
	CAFile             string
	CertFile           string
	KeyFile            string
	InsecureSkipVerify bool
	Concurrency        int
	Timeout            time.Duration
	KeepAlive          time.Duration
	MaxPoints          int
	// ExtensionLabels is "k=v,k2=v2", appended to each query.
	ExtensionLabels string
}

// New returns the defaults; the address has none.
func New() Options {
	return Options{
		Concurrency: 10,
		Timeout:     3 * time.Minute,
		KeepAlive:   60 * time.Second,
		MaxPoints:   11_000,
	}
}

// AddFlags adds a flag for each option to fs.
func (p *Options) AddFlags(fs *pflag.FlagSet) {
	p.AddAccessFlags(fs)
	fs.IntVar(&p.MaxPoints, "prometheus-maxpoints", p.MaxPoints, "Maximum number of points per series of one range query.")
	fs.StringVar(&p.ExtensionLabels, "extension-labels", p.ExtensionLabels,
		"Label matchers for each query, as k=v,k2=v2; for a Prometheus that holds several clusters.")
}

// AddAccessFlags is AddFlags for binaries without range queries.
func (p *Options) AddAccessFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.Address, "prometheus-address", p.Address,
		"URL of Prometheus, or of Thanos, Mimir or VictoriaMetrics through the same API. User and password in it are visible in the list of processes.")
	fs.StringVar(&p.Username, "prometheus-auth-username", p.Username, "User of basic authentication.")
	fs.StringVar(&p.Password, "prometheus-auth-password", p.Password, "Password of basic authentication. Deprecated: visible in the list of processes; use --prometheus-auth-password-file or $"+envPassword+".")
	fs.StringVar(&p.PasswordFile, "prometheus-auth-password-file", p.PasswordFile,
		"File with the password of basic authentication, read again for each request.")
	fs.StringVar(&p.BearerToken, "prometheus-auth-bearertoken", p.BearerToken,
		"Bearer token. Deprecated: visible in the list of processes; use --prometheus-auth-bearertoken-file or $"+envToken+".")
	fs.StringVar(&p.BearerTokenFile, "prometheus-auth-bearertoken-file", p.BearerTokenFile,
		"File with the bearer token, read again when it changes.")

	fs.StringArrayVar(&p.Headers, "prometheus-header", p.Headers,
		"Header for each request, as 'Name: value', for example 'X-Scope-OrgID: team-a'; may be repeated. Visible in the list of processes.")
	fs.StringVar(&p.HeadersFile, "prometheus-headers-file", p.HeadersFile,
		"File with headers for each request, one 'Name: value' a line, for example from a Secret. It is read again for each request and overrides --prometheus-header.")
	fs.StringVar(&p.CAFile, "prometheus-ca-file", p.CAFile, "PEM file with certificate authorities that are trusted in addition to the system's.")
	fs.StringVar(&p.CertFile, "prometheus-cert-file", p.CertFile, "PEM file with the client certificate.")

	fs.StringVar(&p.KeyFile, "prometheus-key-file", p.KeyFile, "PEM file with the key of the client certificate.")
	fs.BoolVar(&p.InsecureSkipVerify, "prometheus-insecure-skip-verify", p.InsecureSkipVerify,
		"Do not verify the certificate of Prometheus.")
	fs.IntVar(&p.Concurrency, "prometheus-query-concurrency", p.Concurrency, "Maximum number of concurrent queries.")
	fs.DurationVar(&p.Timeout, "prometheus-timeout", p.Timeout, "Timeout of one query.")
	fs.DurationVar(&p.KeepAlive, "prometheus-keepalive", p.KeepAlive, "Time between TCP keep-alive probes.")
}

// Complete reads unset credentials from the environment and returns a warning for each option on the command line that has or may have a
// credential: all users of the host can read it. If a flag selects an authentication method, the other methods in the environment are ignored.
func (p *Options) Complete() []string {
	var warnings []string
	if p.Password != "" {
		warnings = append(warnings, "--prometheus-auth-password is visible in the list of processes: use --prometheus-auth-password-file or $"+envPassword)
	}
	if p.BearerToken != "" {
		warnings = append(warnings, "--prometheus-auth-bearertoken is visible in the list of processes: use --prometheus-auth-bearertoken-file or $"+envToken)
	}

	if u, err := url.Parse(p.Address); err == nil && u.User != nil {
		warnings = append(warnings, "--prometheus-address has credentials, which are visible in the list of processes: "+
			"use --prometheus-auth-username with --prometheus-auth-password-file, or --prometheus-auth-bearertoken-file")
	}

	if len(p.Headers) > 0 {
		warnings = append(warnings, "--prometheus-header is visible in the list of processes: use --prometheus-headers-file for headers with credentials")
	}

	// A token in the environment comes before a user name; a server accepts one method.
	if p.Username == "" && p.BearerToken == "" && p.BearerTokenFile == "" {
		p.BearerToken = os.Getenv(envToken)
		if p.BearerToken == "" {
			p.Username = os.Getenv(envUsername)
		}
	}

	if p.Username != "" && p.Password == "" && p.PasswordFile == "" {
		p.Password = os.Getenv(envPassword)
	}

	return warnings
}

func flag(name string) *field.Path { return field.NewPath("--" + name) }

// Validate returns an error with the flag of each invalid option. It opens no file.
func (p Options) Validate() field.ErrorList {
	var errs field.ErrorList
	if p.Address == "" {
		errs = append(errs, field.Required(flag("prometheus-address"), "the data source prom needs the URL of a Prometheus"))
	} else if u, err := url.Parse(p.Address); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		value := any(p.Address)
		if strings.Contains(p.Address, "@") {
			value = field.OmitValueType{} // It may have a password.
		}

		errs = append(errs, field.Invalid(flag("prometheus-address"), value, "must be a URL that begins with http:// or https://"))
	}

	if p.Concurrency < 1 {
		errs = append(errs, field.Invalid(flag("prometheus-query-concurrency"), p.Concurrency, "must be 1 or more"))
	}

	if p.MaxPoints < 2 {
		errs = append(errs, field.Invalid(flag("prometheus-maxpoints"), p.MaxPoints, "must be 2 or more"))
	}

	if p.Timeout <= 0 {
		errs = append(errs, field.Invalid(flag("prometheus-timeout"), p.Timeout.String(), "must be more than 0"))
	}

	if p.KeepAlive < 0 {
		errs = append(errs, field.Invalid(flag("prometheus-keepalive"), p.KeepAlive.String(), "must be 0 or more"))
	}

	if (p.CertFile == "") != (p.KeyFile == "") {
		errs = append(errs, field.Required(flag("prometheus-cert-file"), "--prometheus-cert-file and --prometheus-key-file go together"))
	}

	if _, err := prometheus.ParseMatchers(p.ExtensionLabels); err != nil {
		errs = append(errs, field.Invalid(flag("extension-labels"), p.ExtensionLabels, err.Error()))
	}

	return append(append(errs, p.validateCredentials()...), p.validateHeaders()...)
}

func (p Options) validateCredentials() field.ErrorList {
	var errs field.ErrorList
	if p.BearerToken != "" && p.BearerTokenFile != "" {
		errs = append(errs, field.Forbidden(flag("prometheus-auth-bearertoken-file"), "--prometheus-auth-bearertoken is set as well"))
	}

	if p.Username != "" && (p.BearerToken != "" || p.BearerTokenFile != "") {
		errs = append(errs, field.Forbidden(flag("prometheus-auth-username"), "a bearer token is set as well: only one of them can be sent"))
	}

	if p.Password != "" && p.PasswordFile != "" {
		errs = append(errs, field.Forbidden(flag("prometheus-auth-password-file"), "--prometheus-auth-password is set as well"))
	}

	if (p.Password != "" || p.PasswordFile != "") && p.Username == "" {
		errs = append(errs, field.Required(flag("prometheus-auth-username"), "a password is set"))
	}

	return errs
}

// validateHeaders returns errors without the values of headers, which may be secret.
func (p Options) validateHeaders() field.ErrorList {
	var errs field.ErrorList
	for i, text := range p.Headers {
		if _, _, err := prometheus.ParseHeader(text); err != nil {
			errs = append(errs, field.Invalid(flag("prometheus-header").Index(i), field.OmitValueType{}, err.Error()))
		}
	}

	return errs
}

// Config returns the client configuration.
func (p Options) Config() (prometheus.Config, error) {
	cfg := prometheus.DefaultConfig()
	matchers, err := prometheus.ParseMatchers(p.ExtensionLabels)
	if err != nil {
		return cfg, fmt.Errorf("--extension-labels: %w", err)
	}

	cfg.Address = p.Address
	cfg.Username = p.Username
	cfg.Password = p.Password
	cfg.PasswordFile = p.PasswordFile
	cfg.BearerToken = p.BearerToken
	cfg.BearerTokenFile = p.BearerTokenFile
	cfg.HeadersFile = p.HeadersFile

	for _, text := range p.Headers {
		name, value, err := prometheus.ParseHeader(text)
		if err != nil {
			return cfg, fmt.Errorf("--prometheus-header: %w", err)
		}

		if cfg.Headers == nil {
			cfg.Headers = map[string]string{}
		}
		cfg.Headers[name] = value
	}

	cfg.TLS = prometheus.TLSConfig{
		CAFile:             p.CAFile,
		CertFile:           p.CertFile,
		KeyFile:            p.KeyFile,
		InsecureSkipVerify: p.InsecureSkipVerify,
	}

	cfg.Concurrency = p.Concurrency
	cfg.MaxPoints = p.MaxPoints
	cfg.Timeout = p.Timeout
	cfg.KeepAlive = p.KeepAlive
	cfg.Matchers = matchers

	return cfg, nil
}
