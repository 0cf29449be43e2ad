// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"crane.io/crane/internal/agent/host"
)

const (
	// kubeletTimeout limits a request to the kubelet, which is on the same machine.
	kubeletTimeout = 5 * time.Second
	// maxCertificates limits the kubelet's serving certificate: its own and its authority's.
	maxCertificates = 8
)

var (
	// errRefused reports that the kubelet permanently refuses to return its configuration.
	errRefused = errors.New("the kubelet refuses")
	// errUnknownEndpoint reports that the kubelet's address is not known yet.
	errUnknownEndpoint = errors.New("the kubelet's address is not known from the API server yet")
	// errUntrusted reports a server whose certificate does not identify the node's kubelet.
	errUntrusted = errors.New("cannot verify that the server is the node's kubelet")
)

// KubeletClient requests the running configuration from the kubelet's own port with the agent's API server credentials. That needs the
// right to get nodes/configz, which kubelets check from Kubernetes 1.33 on (KubeletFineGrainedAuthz); the API server's proxy would need
// nodes/proxy, which gives access to every pod of the node. Credentials are sent only after the server's certificate was verified.
type KubeletClient struct {
	// Credentials are those for the API server, whose certificate authority also verifies kubelets.
	Credentials *rest.Config
	// Root and Dir locate the kubelet's self-signed certificate, if it has one.
	Root host.Root
	Dir  string
}

// Configz returns the answer of the node's kubelet. The error is errRefused if it will not change soon.
func (c *KubeletClient) Configz(ctx context.Context, node *corev1.Node) ([]byte, error) {
	address, port := kubeletEndpoint(node)
	if address == "" || port == 0 {
		return nil, fmt.Errorf("Node %s has no kubelet address or port", node.Name)
	}

	client, err := c.newHTTPClient(node.Name, address)
	if err != nil {
		return nil, fmt.Errorf("querying the kubelet: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()

	target := url.URL{Scheme: "https", Host: net.JoinHostPort(address, strconv.Itoa(port)), Path: "/configz"}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("querying the kubelet: %w", err)
	}

	reply, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("querying the kubelet: %w", stableError(err))
	}
	defer reply.Body.Close()

	switch reply.StatusCode {
	case http.StatusOK:
	case http.StatusForbidden:
		return nil, fmt.Errorf("%w: %s: it requires the right to get nodes/configz and kubelet 1.33 or newer, or nodes/proxy", errRefused, reply.Status)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return nil, fmt.Errorf("%w: %s: enableDebuggingHandlers is off", errRefused, reply.Status)
	default:
		// This includes Unauthorized, which the kubelet also returns while it cannot reach the API server.
		return nil, fmt.Errorf("querying the kubelet: %s", reply.Status)
	}

	content, err := io.ReadAll(io.LimitReader(reply.Body, maxConfigurationBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("querying the kubelet: %w", stableError(err))
	case len(content) > maxConfigurationBytes:
		return nil, fmt.Errorf("querying the kubelet: the answer is longer than %d bytes", maxConfigurationBytes)
	}

	return content, nil
}

// kubeletEndpoint returns the kubelet's address and port from the Node's status.
func kubeletEndpoint(node *corev1.Node) (address string, port int) {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address, int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
		}
	}

	return "", 0
}

// stableError removes details that differ between attempts, such as the local port.
func stableError(err error) error {
	if operation := (*net.OpError)(nil); errors.As(err, &operation) {
		return fmt.Errorf("%s: %w", operation.Op, operation.Err)
	}

	if request := (*url.Error)(nil); errors.As(err, &request) {
		return request.Err
	}

	return err
}

// newHTTPClient returns a client for one request: it reads tokens and certificates again and keeps no connection.
func (c *KubeletClient) newHTTPClient(node, address string) (*http.Client, error) {
	config, err := rest.TLSConfigFor(c.Credentials)
	if err != nil {
		return nil, fmt.Errorf("reading credentials: %w", err)
	}

	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}

	roots := config.RootCAs
	if roots == nil {
		roots = x509.NewCertPool() // not the system's public authorities
	}

	serving := c.readServingCertificates()
	// Go's own verification supports neither alternative names nor a pinned certificate.
	config.ServerName = ""
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		return verifyCertificate(state.PeerCertificates, roots, serving, node, address)
	}

	transport, err := rest.HTTPWrappersForConfig(c.Credentials, &http.Transport{TLSClientConfig: config, DisableKeepAlives: true})
	if err != nil {
		return nil, fmt.Errorf("reading credentials: %w", err)
	}

	// A redirect would forward the token.
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, CheckRedirect: refuse}, nil
}

// verifyCertificate accepts certificates that are signed by the cluster's authority for the node's name or address, or whose first one is
// in the kubelet's own directory.
func verifyCertificate(presented []*x509.Certificate, roots *x509.CertPool, serving []*x509.Certificate, names ...string) error {
	if len(presented) == 0 {
		return fmt.Errorf("%w: no certificate", errUntrusted)
	}

	if slices.ContainsFunc(serving, presented[0].Equal) {
		return nil
	}

	intermediates := x509.NewCertPool()
	for _, c := range presented[1:] {
		intermediates.AddCert(c)
	}

	if _, err := presented[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates}); err != nil {
		return fmt.Errorf("%w: its certificate is not in the kubelet's directory, and %w", errUntrusted, err)
	}

	if !slices.ContainsFunc(names, func(name string) bool { return presented[0].VerifyHostname(name) == nil }) {
		return fmt.Errorf("%w: its certificate names none of %q", errUntrusted, names)
	}

	return nil
}

// readServingCertificates returns the kubelet's self-signed serving certificate, used if it has no other.
func (c *KubeletClient) readServingCertificates() (out []*x509.Certificate) {
	content, err := host.ReadKubeletFile(c.Root, c.Dir, "pki", "kubelet.crt")
	for err == nil && len(out) < maxCertificates {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			break
		}

		if parsed, parseErr := x509.ParseCertificate(block.Bytes); parseErr == nil {
			out = append(out, parsed)
		}
	}

	return out
}
