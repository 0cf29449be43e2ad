// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func at(now time.Time) func() time.Time { return func() time.Time { return now } }

func authority(t *testing.T, dir, name string) *Authority {
	t.Helper()

	a, err := LoadOrCreate(dir, name, "test", at(epoch))
	if err != nil {
		t.Fatal(err)
	}

	return a
}

func leaf(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()

	both, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}

	return both.Leaf
}

func roots(t *testing.T, a *Authority) *x509.CertPool {
	t.Helper()

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.CertPEM()) {
		t.Fatal("CertPEM has no certificate, want that of the authority")
	}

	return pool
}

func TestIssueServing(t *testing.T) {
	a := authority(t, t.TempDir(), "ca")
	other := authority(t, t.TempDir(), "ca")

	pair, err := a.IssueServing("api.test", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}

	cert := leaf(t, pair)
	server := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for name, test := range map[string]struct {
		options x509.VerifyOptions
		valid   bool
	}{
		"name":        {x509.VerifyOptions{DNSName: "api.test", Roots: roots(t, a), CurrentTime: epoch, KeyUsages: server}, true},
		"address":     {x509.VerifyOptions{DNSName: "127.0.0.1", Roots: roots(t, a), CurrentTime: epoch, KeyUsages: server}, true},
		"slow clock":  {x509.VerifyOptions{DNSName: "api.test", Roots: roots(t, a), CurrentTime: epoch.Add(-Backdate / 2), KeyUsages: server}, true},
		"other name":  {x509.VerifyOptions{DNSName: "other.test", Roots: roots(t, a), CurrentTime: epoch, KeyUsages: server}, false},
		"other roots": {x509.VerifyOptions{DNSName: "api.test", Roots: roots(t, other), CurrentTime: epoch, KeyUsages: server}, false},
		"too late":    {x509.VerifyOptions{DNSName: "api.test", Roots: roots(t, a), CurrentTime: epoch.Add(2 * leafLife), KeyUsages: server}, false},
		"as a client": {x509.VerifyOptions{Roots: roots(t, a), CurrentTime: epoch, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := cert.Verify(test.options); (err == nil) != test.valid {
				t.Errorf("error %v, want valid: %t", err, test.valid)
			}
		})
	}

	if cert.IsCA {
		t.Error("a serving certificate can sign, want one that cannot")
	}
	if _, err := a.IssueServing(); err == nil {
		t.Error("IssueServing without a host = nil, want an error")
	}
}

func TestIssueClient(t *testing.T) {
	a := authority(t, t.TempDir(), "ca")
	pair, err := a.IssueClient("system:node:n1", "system:nodes", "g")
	if err != nil {
		t.Fatal(err)
	}

	cert := leaf(t, pair)
	groups := slices.Sorted(slices.Values(cert.Subject.Organization))
	if cert.Subject.CommonName != "system:node:n1" || !slices.Equal(groups, []string{"g", "system:nodes"}) {
		t.Errorf("IssueClient has the subject %s, want system:node:n1 in g and system:nodes", cert.Subject)
	}

	_, err = cert.Verify(x509.VerifyOptions{
		Roots: roots(t, a), CurrentTime: epoch, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := a.IssueClient(""); err == nil {
		t.Error("IssueClient without a name = nil, want an error")
	}
}

func TestLoadOrCreate_Kept(t *testing.T) {
	dir := t.TempDir()
	first := authority(t, dir, "ca")
	if !bytes.Equal(first.CertPEM(), authority(t, dir, "ca").CertPEM()) {
		t.Error("LoadOrCreate has another authority the second time, want the same")
	}
	if bytes.Equal(first.CertPEM(), authority(t, dir, "front").CertPEM()) {
		t.Error("LoadOrCreate of two names has one authority, want two")
	}

	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file is %v, %v, want mode 0600", info, err)
	}
}

func TestLoadOrCreate_Invalid(t *testing.T) {
	client, err := authority(t, t.TempDir(), "ca").IssueClient("u")
	if err != nil {
		t.Fatal(err)
	}

	good := authority(t, t.TempDir(), "ca").pair
	for name, test := range map[string]struct {
		pair Pair
		now  time.Time
	}{
		"text":          {Pair{[]byte("text"), []byte("text")}, epoch},
		"other key":     {Pair{good.CertPEM, client.KeyPEM}, epoch},
		"not authority": {client, epoch},
		"nearly over":   {good, epoch.Add(authorityLife - leafLife/2)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := test.pair.Write(dir, "ca"); err != nil {
				t.Fatal(err)
			}

			if _, err := LoadOrCreate(dir, "ca", "test", at(test.now)); err == nil || !strings.Contains(err.Error(), "ca") {
				t.Errorf("error %v, want one that names the authority", err)
			}
		})
	}

	t.Run("key missing", func(t *testing.T) {
		dir := t.TempDir()
		authority(t, dir, "ca")

		if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
			t.Fatal(err)
		}

		if _, err := LoadOrCreate(dir, "ca", "test", at(epoch)); err == nil {
			t.Error("LoadOrCreate of an authority without a key = nil, want an error")
		}
	})
}

func TestEnsureKey(t *testing.T) {
	dir := t.TempDir()
	var first []byte
	for range 2 {
		if err := EnsureKey(dir, "sa"); err != nil {
			t.Fatal(err)
		}

		data, err := os.ReadFile(filepath.Join(dir, "sa.key"))
		if err != nil {
			t.Fatal(err)
		}

		if first != nil && !bytes.Equal(first, data) {
			t.Error("the key changed, want the first one")
		}
		first = data
	}

	block, _ := pem.Decode(first)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}

	public, err := os.ReadFile(filepath.Join(dir, "sa.pub"))
	if err != nil {
		t.Fatal(err)
	}

	block, _ = pem.Decode(public)
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil || !key.PublicKey.Equal(parsed) {
		t.Errorf("the public key is not that of the private one: %v, want a pair", err)
	}
}
