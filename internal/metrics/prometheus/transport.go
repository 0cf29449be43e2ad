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

// idleTimeout closes idle connections; usage is read in bursts, many minutes apart.
const idleTimeout = 90 * time.Second

// newTransport returns a transport with authentication, TLS whose files are read again when they change, and the proxy from the environment.
// It does not follow redirects: a redirected POST loses its query, and the target must not receive the credentials.
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

// isLoopback reports whether the server is on this machine, where compression costs more than it saves.
func isLoopback(u *url.URL) bool {
	host := u.Hostname()
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
