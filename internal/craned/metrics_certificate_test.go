// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"crane.io/crane/internal/kube/pki"
)

// TestManagedCertificate: Prometheus, which names the Service, gets the managed certificate once there is one; other clients get that of the start.
func TestManagedCertificate(t *testing.T) {
	const host = "craned.crane-system.svc"

	hosts := newWebhook()
	if got := hosts.hosts("crane-system"); !slices.Contains(got, host) {
		t.Fatalf("hosts of the managed certificate are %q, want %s among them", got, host)
	}

	authority, err := pki.NewAuthority("test", time.Hour, time.Now)
	if err != nil {
		t.Fatal(err)
	}

	pair, err := authority.IssueServingFor(time.Hour, host)
	if err != nil {
		t.Fatal(err)
	}

	managed, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}

	config, _, err := pki.ServingConfig("", "craned")
	if err != nil {
		t.Fatal(err)
	}

	ready := false
	config.GetCertificate = managedCertificate(func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if !ready {
			return nil, errors.New("there is no serving certificate yet")
		}

		return &managed, nil
	})

	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate())
	prometheus := &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}
	blind := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}

	if err := handshake(t, config, prometheus); err == nil {
		t.Error("handshake before there is a managed certificate succeeded, want an unknown authority")
	}
	if err := handshake(t, config, blind); err != nil {
		t.Errorf("handshake of a client that does not verify, before there is a managed certificate: %v", err)
	}

	ready = true
	if err := handshake(t, config, prometheus); err != nil {
		t.Errorf("handshake with the authority and the name in the ServiceMonitor: %v", err)
	}
	if err := handshake(t, config, blind); err != nil {
		t.Errorf("handshake of a client that does not verify: %v", err)
	}
}

// handshake connects a client to a server and returns the error of the client.
func handshake(t *testing.T, server, client *tls.Config) error {
	t.Helper()

	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()

	go func() { _ = tls.Server(far, server).HandshakeContext(t.Context()) }()

	return tls.Client(near, client).HandshakeContext(t.Context())
}
