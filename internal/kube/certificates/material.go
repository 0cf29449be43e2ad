// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"crane.io/crane/internal/kube/pki"
)

// Keys of the Secret. It has the type kubernetes.io/tls, so that the usual tools can read it.
const (
	// keyBundle is the key of the trusted authorities, the signing one first.
	keyBundle = "ca.crt"
	// keyAuthority is the key of the signing authority's private key.
	keyAuthority = "ca.key"
	// keyServing and keyServingKey are the keys of the serving certificate and its private key.
	keyServing    = "tls.crt"
	keyServingKey = "tls.key"
)

// maxAuthorities is the maximum size of the bundle. Two are in use during a renewal; more are caused only by clocks that jump.
const maxAuthorities = 4

// material is the decoded content of the Secret. It is immutable: each step returns a new one.
type material struct {
	// signer is the authority that signs new certificates.
	signer *pki.Authority
	// older are authorities that are still trusted, the younger first.
	older []*x509.Certificate
	// serving is nil if the Secret has no readable serving certificate.
	serving *tls.Certificate
	pair    pki.Pair
}

// parse decodes the data of a Secret. An unreadable serving certificate is left out, because it can be issued again. Unreadable
// authorities are an error.
func parse(data map[string][]byte, now func() time.Time) (*material, error) {
	bundle, err := certificatesIn(data[keyBundle])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyBundle, err)
	}

	signer, err := pki.ParseAuthority(pki.Pair{CertPEM: encodeCertificate(bundle[0]), KeyPEM: data[keyAuthority]}, now)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", keyBundle, keyAuthority, err)
	}

	m := &material{signer: signer, older: bundle[1:]}
	m.setServing(pki.Pair{CertPEM: data[keyServing], KeyPEM: data[keyServingKey]})
	return m, nil
}

func (m *material) setServing(pair pki.Pair) {
	m.serving = nil
	m.pair = pki.Pair{}
	if both, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM); err == nil {
		m.serving = &both
		m.pair = pair
	}
}

// certificatesIn returns the authorities of a bundle, at least one.
func certificatesIn(bundle []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for rest := bundle; ; {
		block, after := pem.Decode(rest)
		if block == nil {
			break
		}

		rest = after

		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(out)+1, err)
		}

		// A bundle holds authorities alone, and few of them.
		if !cert.IsCA {
			return nil, fmt.Errorf("certificate %d is not that of an authority", len(out)+1)
		}

		if len(out) == maxAuthorities {
			return nil, fmt.Errorf("more than %d certificates", maxAuthorities)
		}

		out = append(out, cert)
	}

	if len(out) == 0 {
		return nil, errors.New("no certificate")
	}

	return out, nil
}

func encodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// authorities returns all trusted authorities, the signing one first.
func (m *material) authorities() []*x509.Certificate {
	return append([]*x509.Certificate{m.signer.Certificate()}, m.older...)
}

// bundle returns the PEM bundle for callers.
func (m *material) bundle() []byte {
	var b bytes.Buffer
	for _, c := range m.authorities() {
		b.Write(encodeCertificate(c))
	}

	return b.Bytes()
}

// data returns the new data of the Secret; other keys are kept.
func (m *material) data(current map[string][]byte) map[string][]byte {
	out := maps.Clone(current)
	if out == nil {
		out = map[string][]byte{}
	}

	out[keyBundle] = m.bundle()
	out[keyAuthority] = m.signer.KeyPEM()
	out[keyServing] = m.pair.CertPEM
	out[keyServingKey] = m.pair.KeyPEM

	return out
}

// signedBy reports whether an authority signed the serving certificate.
func (m *material) signedBy(authority *x509.Certificate) bool {
	return m.serving != nil && m.serving.Leaf.CheckSignatureFrom(authority) == nil
}

// missing returns the hosts for which the serving certificate is not valid.
func (m *material) missing(hosts []string) []string {
	return slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return m.serving.Leaf.VerifyHostname(h) == nil })
}

// hosts returns the hosts of the serving certificate.
func (m *material) hosts() []string {
	if m.serving == nil {
		return nil
	}

	out := slices.Clone(m.serving.Leaf.DNSNames)
	for _, ip := range m.serving.Leaf.IPAddresses {
		out = append(out, ip.String())
	}

	return out
}
