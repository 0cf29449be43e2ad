// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki issues certificates: authorities, which may be stored in a directory, the leaf certificates that they sign, and the
// keys of service accounts. Keys are ECDSA P-256. It is independent of the components that use them and of renewals.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"crane.io/crane/internal/component/atomicfile"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// Backdate is how long before its issue a certificate becomes valid, for clients whose clock is slow.
	Backdate = time.Hour
)

// Pair is a certificate (with its chain) and its private key, both PEM.
type Pair struct {
	CertPEM, KeyPEM []byte
}

// Write stores the pair as dir/name.crt and dir/name.key, readable by the owner only. The certificate is written last: if it
// exists, the key does too.
func (p Pair) Write(dir, name string) error {
	if err := writeFile(filepath.Join(dir, name+".key"), p.KeyPEM); err != nil {
		return err
	}

	return writeFile(filepath.Join(dir, name+".crt"), p.CertPEM)
}

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	pair Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	now  func() time.Time
}

// LoadOrCreate reads dir/name.crt and dir/name.key, or creates an authority called commonName and writes it there.
func LoadOrCreate(dir, name, commonName string, now func() time.Time) (*Authority, error) {
	certPEM, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	if errors.Is(err, fs.ErrNotExist) {
		a, err := NewAuthority(commonName, authorityLife, now)
		if err != nil {
			return nil, fmt.Errorf("creating certificate authority %s: %w", name, err)
		}

		return a, a.pair.Write(dir, name)
	}

	if err != nil {
		return nil, fmt.Errorf("reading certificate authority %s: %w", name, err)
	}

	keyPEM, err := os.ReadFile(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, fmt.Errorf("reading key of certificate authority %s: %w", name, err)
	}

	// An authority must outlive the certificates that it is about to sign.
	a, err := ParseAuthority(Pair{CertPEM: certPEM, KeyPEM: keyPEM}, now)
	if err == nil && !now().Add(leafLife).Before(a.cert.NotAfter) {
		err = fmt.Errorf("certificate ends on %s, too soon to sign for %s", a.cert.NotAfter, leafLife)
	}

	if err != nil {
		return nil, fmt.Errorf("certificate authority %s in %s: %w", name, dir, err)
	}

	return a, nil
}

// NewAuthority creates an authority that is valid from an hour ago for life.
func NewAuthority(commonName string, life time.Duration, now func() time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}

	template, err := newTemplate(pkix.Name{CommonName: commonName}, now(), life)
	if err != nil {
		return nil, err
	}

	template.IsCA = true
	template.BasicConstraintsValid = true

	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	pair, err := sign(template, template, key, key)
	if err != nil {
		return nil, err
	}

	return ParseAuthority(pair, now)
}

// ParseAuthority parses a certificate that may sign, and its key. It does not check the time.
func ParseAuthority(pair Pair, now func() time.Time) (*Authority, error) {
	both, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		return nil, err
	}

	key, ok := both.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("key is %T, not ECDSA", both.PrivateKey)
	}

	if !both.Leaf.IsCA {
		return nil, errors.New("certificate is not that of an authority")
	}

	return &Authority{
		pair: pair,
		cert: both.Leaf,
		key:  key,
		now:  now,
	}, nil
}

// CertPEM returns the authority's own certificate.
func (a *Authority) CertPEM() []byte { return a.pair.CertPEM }

// KeyPEM returns its private key.
func (a *Authority) KeyPEM() []byte { return a.pair.KeyPEM }

// Certificate returns the parsed CertPEM. It must not be changed.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// IssueServing issues a server certificate for hosts, each a DNS name or an IP address, that is valid for a year.
func (a *Authority) IssueServing(hosts ...string) (Pair, error) {
	return a.IssueServingFor(leafLife, hosts...)
}

// IssueServingFor issues a server certificate for hosts, each a DNS name or an IP address, that is valid from an hour ago for
// life, but not longer than the authority.
func (a *Authority) IssueServingFor(life time.Duration, hosts ...string) (Pair, error) {
	if len(hosts) == 0 {
		return Pair{}, errors.New("issue serving certificate: no hosts")
	}

	template, err := newTemplate(pkix.Name{CommonName: hosts[0]}, a.now(), life)
	if err != nil {
		return Pair{}, err
	}

	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}

	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}

	return a.issue(template)
}

// IssueClient issues a client certificate; a Kubernetes API server uses the name as the user and groups as its groups.
func (a *Authority) IssueClient(name string, groups ...string) (Pair, error) {
	if name == "" {
		return Pair{}, errors.New("issue client certificate: no user name")
	}

	template, err := newTemplate(pkix.Name{CommonName: name, Organization: groups}, a.now(), leafLife)
	if err != nil {
		return Pair{}, err
	}

	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *Authority) issue(template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}

	pair, err := sign(template, a.cert, key, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate for %s: %w", template.Subject.CommonName, err)
	}

	return pair, nil
}

func newTemplate(subject pkix.Name, now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}

	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-Backdate),
		NotAfter:     now.Add(life),
	}, nil
}

// sign issues the certificate of key from template, signed by the parent's key.
func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return Pair{}, err
	}

	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}

	return Pair{CertPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), KeyPEM: keyPEM}, nil
}

// EnsureKey creates dir/name.key (private) and dir/name.pub unless the private key exists.
func EnsureKey(dir, name string) error {
	path := filepath.Join(dir, name+".key")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key %s: %w", name, err)
	}

	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}

	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return fmt.Errorf("encode public key %s: %w", name, err)
	}

	// The public key is written first: the private file marks that both exist.
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	if err := writeFile(filepath.Join(dir, name+".pub"), public); err != nil {
		return err
	}

	return writeFile(path, keyPEM)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// writeFile replaces a file, so that a reader or an interrupted start never sees a part of it.
func writeFile(path string, data []byte) error {
	if err := atomicfile.Write(path, data); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	return nil
}
