// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	promconfig "github.com/prometheus/common/config"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/metricadapter/status"
)

const (
	// requestTimeout bounds one request. It is shorter than the timeout of the API server.
	requestTimeout = 15 * time.Second
	// maxBodyBytes bounds the size of a response.
	maxBodyBytes = 8 << 20
	// maxConcurrentRequests bounds the requests in flight.
	maxConcurrentRequests = 64
)

// Config is the address and the credentials of the other adapter.
type Config struct {
	// Namespace, Service and Port are those of its Service. Its certificate must be valid for <service>.<namespace>.svc.
	Namespace, Service string
	Port               int
	// Address, where it is not empty, is dialed instead of the name of the Service.
	Address string
	// CAFile contains the authorities that verify its certificate, read again when it changes; empty for the system's.
	CAFile string
	// Token or TokenFile authenticates this adapter.
	Token, TokenFile string
}

// host returns the name that the certificate must be valid for.
func (c Config) host() string { return c.Service + "." + c.Namespace + ".svc" }

// client sends requests to the other adapter.
type client struct {
	base  string
	http  *http.Client
	slots chan struct{}
}

func newClient(c Config) (*client, error) {
	stack := promconfig.HTTPClientConfig{
		EnableHTTP2: true, FollowRedirects: false,
		TLSConfig: promconfig.TLSConfig{CAFile: c.CAFile, ServerName: c.host()},
	}

	switch {
	case c.TokenFile != "":
		stack.Authorization = &promconfig.Authorization{Type: "Bearer", CredentialsFile: c.TokenFile}
	case c.Token != "":
		stack.Authorization = &promconfig.Authorization{Type: "Bearer", Credentials: promconfig.Secret(c.Token)}
	}

	if err := stack.Validate(); err != nil {
		return nil, fmt.Errorf("remote adapter: %w", err)
	}

	dialer := &net.Dialer{Timeout: requestTimeout / 3}
	transport, err := promconfig.NewRoundTripperFromConfig(stack, "remote-adapter",
		promconfig.WithUserAgent("crane-metric-adapter/"+version.String()),
		promconfig.WithDialContextFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
			if c.Address != "" {
				address = c.Address
			}

			return dialer.DialContext(ctx, network, address)
		}))
	if err != nil {
		return nil, fmt.Errorf("remote adapter: %w", err)
	}

	return &client{
		base: "https://" + net.JoinHostPort(c.host(), strconv.Itoa(c.Port)),
		http: &http.Client{Transport: transport, Timeout: requestTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // The target of a redirect must not get the token.
		}},
		slots: make(chan struct{}, maxConcurrentRequests),
	}, nil
}

// get reads an object. Its errors are API statuses: those of the other adapter about the request are forwarded, and failures to
// reach it or to be authorized are unavailable.
func (c *client) get(ctx context.Context, path string, query url.Values, answer any) error {
	// Slots bound the requests that wait for a slow server.
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return status.Unavailable("remote adapter: %v", context.Cause(ctx))
	}

	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return status.BadRequest("remote adapter: %v", err)
	}

	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return unreachable(ctx, err)
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBodyBytes+1))
	switch {
	case err != nil:
		return unreachable(ctx, err)
	case len(body) > maxBodyBytes:
		return status.Unprocessable("remote adapter: the answer is longer than %d MiB", maxBodyBytes>>20)
	case resp.StatusCode != http.StatusOK:
		return statusError(resp.StatusCode, body)
	}

	if err := json.Unmarshal(body, answer); err != nil {
		return status.Unavailable("remote adapter: not the metrics API: %v", err)
	}

	return nil
}

// unreachable logs an error, which has the address of the adapter, and returns one for clients, who are tenants.
func unreachable(ctx context.Context, err error) error {
	klog.FromContext(ctx).Error(err, "reading from the remote adapter")
	return status.Unavailable("remote adapter: it cannot be reached; the log of metric-adapter has the reason")
}

// statusError converts a failed response to an API status.
func statusError(code int, body []byte) error {
	var reported metav1.Status
	message := http.StatusText(code)
	if json.Unmarshal(body, &reported) == nil && reported.Message != "" {
		message = reported.Message
	}

	switch code {
	case http.StatusNotFound:
		return status.NotFound("remote adapter: %s", message)
	case http.StatusBadRequest:
		return status.BadRequest("remote adapter: %s", message)
	case http.StatusUnauthorized, http.StatusForbidden:
		return status.Unavailable("remote adapter: it denies this adapter access: %s", message)
	}

	return status.Unavailable("remote adapter: status %d: %s", code, message)
}
