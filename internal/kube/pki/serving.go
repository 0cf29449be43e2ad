// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// ServingConfig returns the TLS configuration of a server: with tls.crt and tls.key of a directory, or with a self-signed certificate for this
// host and names. follow reads the files again when they change, until its context ends; it is nil without a directory.
func ServingConfig(dir string, names ...string) (config *tls.Config, follow func(ctx context.Context) error, err error) {
	// HTTP/1.1 alone: the limits on requests hold for each connection.
	config = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if dir != "" {
		watcher, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			return nil, nil, fmt.Errorf("reading the certificate in %s: %w", dir, err)
		}

		config.GetCertificate = watcher.GetCertificate
		return config, watcher.Start, nil
	}

	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the name of this host: %w", err)
	}

	certificate, key, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, append([]string{"localhost"}, names...))
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate: %w", err)
	}

	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate: %w", err)
	}

	config.Certificates = []tls.Certificate{pair}
	return config, nil, nil
}
