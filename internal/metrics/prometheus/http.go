// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	promconfig "github.com/prometheus/common/config"

	"crane.io/crane/internal/component/version"
)

// idleTimeout closes connections that nobody used for a while; usage comes in bursts, once in many minutes.
const idleTimeout = 90 * time.Second

// newTransport builds the HTTP stack: authentication, TLS with files that are read again when they change, proxy from
// the environment. Redirects are not followed: a redirected POST loses its query, and credentials do not belong to
// whoever is redirected to.
func newTransport(cfg Config) (http.RoundTripper, error) {
	stack := promconfig.HTTPClientConfig{
		EnableHTTP2:     true,
		FollowRedirects: false,
		ProxyConfig:     promconfig.ProxyConfig{ProxyFromEnvironment: true},
		TLSConfig: promconfig.TLSConfig{
			CAFile: cfg.TLS.CAFile, CertFile: cfg.TLS.CertFile, KeyFile: cfg.TLS.KeyFile,
			ServerName: cfg.TLS.ServerName, InsecureSkipVerify: cfg.TLS.InsecureSkipVerify,
		},
	}
	switch {
	case cfg.Username != "":
		stack.BasicAuth = &promconfig.BasicAuth{Username: cfg.Username, Password: promconfig.Secret(cfg.Password)}
	case cfg.BearerToken != "":
		stack.Authorization = &promconfig.Authorization{Type: "Bearer", Credentials: promconfig.Secret(cfg.BearerToken)}
	case cfg.BearerTokenFile != "":
		stack.Authorization = &promconfig.Authorization{Type: "Bearer", CredentialsFile: cfg.BearerTokenFile}
	}
	if err := stack.Validate(); err != nil {
		return nil, fmt.Errorf("prometheus configuration: %w", err)
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: cfg.KeepAlive}
	rt, err := promconfig.NewRoundTripperFromConfig(stack, "crane",
		promconfig.WithDialContextFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		}),
		promconfig.WithIdleConnTimeout(idleTimeout),
		promconfig.WithUserAgent("crane/"+version.String()),
	)
	if err != nil {
		return nil, fmt.Errorf("prometheus configuration: %w", err)
	}
	return rt, nil
}

// isLoopback tells whether the server is on this machine, where compressing costs more than it saves.
func isLoopback(u *url.URL) bool {
	host := u.Hostname()
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
