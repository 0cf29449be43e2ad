// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	promconfig "github.com/prometheus/common/config"
	"k8s.io/apimachinery/pkg/util/validation"

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
			CAFile:             cfg.TLS.CAFile,
			CertFile:           cfg.TLS.CertFile,
			KeyFile:            cfg.TLS.KeyFile,
			ServerName:         cfg.TLS.ServerName,
			InsecureSkipVerify: cfg.TLS.InsecureSkipVerify,
		},
	}

	switch {
	case cfg.Username != "":
		stack.BasicAuth = &promconfig.BasicAuth{Username: cfg.Username, Password: promconfig.Secret(cfg.Password), PasswordFile: cfg.PasswordFile}
	case cfg.BearerToken != "":
		stack.Authorization = &promconfig.Authorization{Type: "Bearer", Credentials: promconfig.Secret(cfg.BearerToken)}
	case cfg.BearerTokenFile != "":
		stack.Authorization = &promconfig.Authorization{Type: "Bearer", CredentialsFile: cfg.BearerTokenFile}
	}

	if err := stack.Validate(); err != nil {
		return nil, fmt.Errorf("prometheus configuration: %w", err)
	}

	// The dialer is our own so that the keep-alive can be configured.
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

// maxHeaderFile bounds the size of a file with headers in bytes. Servers accept 8 KiB to 1 MiB of headers.
const maxHeaderFile = 16 << 10

// ParseHeader parses a header of the form `Name: value`. Errors do not contain the value, which may be secret.
func ParseHeader(text string) (name, value string, err error) {
	name, value, found := strings.Cut(text, ":")
	name = strings.TrimSpace(name)
	value = strings.TrimSpace(value)
	switch {
	case !found || value == "" || len(validation.IsHTTPHeaderName(name)) > 0:
		return "", "", errors.New("want 'Name: value'")
	case strings.ContainsFunc(value, unicode.IsControl):
		return "", "", fmt.Errorf("header %q: its value has a control character", name)
	}

	return http.CanonicalHeaderKey(name), value, checkHeaderName(name)
}

// checkHeaderName rejects headers that the client sets.
func checkHeaderName(name string) error {
	switch http.CanonicalHeaderKey(name) {
	case "Authorization", "Content-Type", "Content-Length", "Accept-Encoding", "Host", "":
		return fmt.Errorf("header %q is set by the client itself", name)
	}

	return nil
}

// readHeaders reads a file with one header a line. Empty lines and lines that begin with # are skipped.
func readHeaders(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	defer file.Close()

	out := map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(file, maxHeaderFile+1))
	lines.Buffer(nil, maxHeaderFile)

	read := 0
	for number := 1; lines.Scan(); number++ {
		read += len(lines.Bytes()) + 1
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		name, value, err := ParseHeader(line)
		if err == nil && out[name] != "" {
			err = fmt.Errorf("header %q is given more than once", name)
		}

		if err != nil {
			return nil, fmt.Errorf("headers: %s, line %d: %w", path, number, err)
		}

		out[name] = value
	}

	if lines.Err() != nil || read > maxHeaderFile {
		return nil, fmt.Errorf("headers: %s: more than %d bytes", path, maxHeaderFile)
	}

	if len(out) == 0 {
		return nil, fmt.Errorf("headers: %s has none", path)
	}

	return out, nil
}

// headerSource returns the headers of each request: fixed ones and those of a file, which is read again for each request.
type headerSource struct {
	fixed map[string]string
	path  string // empty for no file

	mu   sync.Mutex
	last map[string]string // the headers of the last successful read, with the fixed ones
}

// current returns the headers to send now.
func (h *headerSource) current() (map[string]string, error) {
	if h.path == "" {
		return h.fixed, nil
	}

	read, err := readHeaders(h.path)
	if err != nil {
		return nil, err
	}

	for name, value := range h.fixed {
		if _, isSet := read[http.CanonicalHeaderKey(name)]; !isSet {
			read[http.CanonicalHeaderKey(name)] = value
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	h.last = read
	return maps.Clone(read), nil
}

// latest returns the headers to send now, or those of the last request if the file cannot be read.
func (h *headerSource) latest() map[string]string {
	if headers, err := h.current(); err == nil {
		return headers
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	return h.last
}
