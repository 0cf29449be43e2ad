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
	// kubeletTimeout is how long a kubelet may take. It is on the same machine.
	kubeletTimeout = 5 * time.Second
	// maxCertificates bounds what is read of the kubelet's own certificate: it and its authority.
	maxCertificates = 8
)

var (
	// errRefused tells of a kubelet that does not say what its configuration is, now and in a while.
	errRefused = errors.New("the kubelet refuses")
	// errUnknownEndpoint tells that it is not known yet where the kubelet serves.
	errUnknownEndpoint = errors.New("the API server has not said yet where the kubelet serves")
	// errUntrusted tells of a server that is not the node's kubelet as far as its certificate says.
	errUntrusted = errors.New("does not show that it is the node's kubelet")
)

// KubeletClient asks a kubelet for the configuration that it runs with, on its own port and with the credentials that the agent has for the
// API server. That takes the right to get nodes/configz, which kubelets know from Kubernetes 1.33 on (KubeletFineGrainedAuthz); the API
// server's proxy takes nodes/proxy, which opens every pod of the node. No credential is sent before the server has shown that it is the
// node's kubelet.
type KubeletClient struct {
	// Credentials are those for the API server. Its authority is taken for that of kubelets.
	Credentials *rest.Config
	// Root and Dir are where the kubelet keeps the certificate that it made itself, where it did.
	Root host.Root
	Dir  string
}

// Configz is what the kubelet of a node answers. The error is errRefused where it will not do so soon.
func (c *KubeletClient) Configz(ctx context.Context, node *corev1.Node) ([]byte, error) {
	address, port := kubeletEndpoint(node)
	if address == "" || port == 0 {
		return nil, fmt.Errorf("the Node %s does not say where its kubelet serves", node.Name)
	}
	client, err := c.newHTTPClient(node.Name, address)
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	target := url.URL{Scheme: "https", Host: net.JoinHostPort(address, strconv.Itoa(port)), Path: "/configz"}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet: %w", err)
	}
	reply, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet: %w", stableError(err))
	}
	defer reply.Body.Close()
	switch reply.StatusCode {
	case http.StatusOK:
	case http.StatusForbidden:
		return nil, fmt.Errorf("%w: %s: it takes the right to get nodes/configz and a kubelet of 1.33 or newer, or nodes/proxy", errRefused, reply.Status)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return nil, fmt.Errorf("%w: %s: enableDebuggingHandlers is off", errRefused, reply.Status)
	default:
		// Unauthorized among it: that is also what it says while it cannot ask the API server who this is.
		return nil, fmt.Errorf("ask the kubelet: %s", reply.Status)
	}
	content, err := io.ReadAll(io.LimitReader(reply.Body, maxConfigurationBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask the kubelet: %w", stableError(err))
	case len(content) > maxConfigurationBytes:
		return nil, fmt.Errorf("ask the kubelet: it answers with more than %d bytes", maxConfigurationBytes)
	}
	return content, nil
}

// kubeletEndpoint is where a node says that its kubelet serves.
func kubeletEndpoint(node *corev1.Node) (address string, port int) {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address, int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
		}
	}
	return "", 0
}

// stableError is an error without what differs each time, such as the port on this side.
func stableError(err error) error {
	if operation := (*net.OpError)(nil); errors.As(err, &operation) {
		return fmt.Errorf("%s: %w", operation.Op, operation.Err)
	}
	if request := (*url.Error)(nil); errors.As(err, &request) {
		return request.Err
	}
	return err
}

// newHTTPClient is for one request: tokens and certificates are read anew each time, and no connection stays.
func (c *KubeletClient) newHTTPClient(node, address string) (*http.Client, error) {
	config, err := rest.TLSConfigFor(c.Credentials)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	roots := config.RootCAs
	if roots == nil {
		roots = x509.NewCertPool() // Not those that anybody on the internet can ask for a certificate.
	}
	own := c.readServingCertificates()
	// What Go does by itself knows neither of two names nor of a certificate without an authority.
	config.ServerName, config.InsecureSkipVerify = "", true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		return verifyCertificate(state.PeerCertificates, roots, own, node, address)
	}
	transport, err := rest.HTTPWrappersForConfig(c.Credentials, &http.Transport{TLSClientConfig: config, DisableKeepAlives: true})
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	// Followed elsewhere, the token would go along.
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, CheckRedirect: refuse}, nil
}

// verifyCertificate tells whether who shows these certificates is the kubelet: they are of the cluster's authority and for the node, by its name or
// its address, or the first is in the kubelet's own directory.
func verifyCertificate(shown []*x509.Certificate, roots *x509.CertPool, own []*x509.Certificate, names ...string) error {
	if len(shown) == 0 {
		return fmt.Errorf("%w: no certificate", errUntrusted)
	}
	if slices.ContainsFunc(own, shown[0].Equal) {
		return nil
	}
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	if _, err := shown[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err != nil {
		return fmt.Errorf("%w: its certificate is not in the kubelet's directory, and %w", errUntrusted, err)
	}
	if !slices.ContainsFunc(names, func(name string) bool { return shown[0].VerifyHostname(name) == nil }) {
		return fmt.Errorf("%w: its certificate is for none of %q", errUntrusted, names)
	}
	return nil
}

// readServingCertificates are those of the kubelet's own making: without others it serves with a certificate that only its directory vouches for.
func (c *KubeletClient) readServingCertificates() (out []*x509.Certificate) {
	left, err := host.ReadKubeletFile(c.Root, c.Dir, "pki", "kubelet.crt")
	for err == nil && len(out) < maxCertificates {
		var block *pem.Block
		if block, left = pem.Decode(left); block == nil {
			break
		}
		if parsed, failed := x509.ParseCertificate(block.Bytes); failed == nil {
			out = append(out, parsed)
		}
	}
	return out
}
