// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestPublicMessage_Connections checks that errors of real connections name no address, and keep what else they say.
func TestPublicMessage_Connections(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	unverified := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(unverified.Close)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()

	for name, c := range map[string]struct {
		ctx     context.Context
		address string
		want    string
	}{
		"refused":    {t.Context(), closed.URL, "listing pods: the server cannot be reached: connection refused"},
		"unverified": {t.Context(), unverified.URL, "listing pods: the server cannot be reached"},
		"canceled":   {canceled, closed.URL, "listing pods: the server cannot be reached: canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(c.ctx, http.MethodGet, c.address, nil)
			if err != nil {
				t.Fatal(err)
			}

			response, err := http.DefaultClient.Do(request)
			if err == nil {
				response.Body.Close()
				t.Fatalf("GET %s = %s, want an error", c.address, response.Status)
			}
			if got := PublicMessage(fmt.Errorf("listing pods: %w", err)); got != c.want {
				t.Errorf("PublicMessage(%v) = %q, want %q", err, got, c.want)
			}
		})
	}

	host := "10.96.0.1"
	joined := errors.Join(errors.New("first"), &url.Error{Op: "Get", URL: "https://" + host, Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: host}},
		fmt.Errorf("second: %w", &net.DNSError{Err: "no such host", Name: "api.example", Server: host}))
	got := PublicMessage(joined)
	if strings.Contains(got, host) || strings.Contains(got, "api.example") || !strings.Contains(got, "first") || !strings.Contains(got, "second: ") {
		t.Errorf("PublicMessage(%v) = %q, want no address and the other texts", joined, got)
	}
}
