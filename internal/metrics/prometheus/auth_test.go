// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAuthentication(t *testing.T) {
	tokenFile := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()

		if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var want string
	address, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != want {
			t.Errorf("Authorization %q, want %q", got, want)
		}
		io.WriteString(w, emptyVector)
	})

	ask := func(s *Source) {
		t.Helper()

		if _, err := s.Instant(t.Context(), "up", time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
	}

	want = "Basic dXNlcjpwYTpzcw==" // user:pa:ss
	ask(newSource(t, address, func(c *Config) { c.Username, c.Password = "user", "pa:ss" }))
	ask(newSource(t, strings.Replace(address, "http://", "http://user:pa%3Ass@", 1), nil))
	want = "Bearer abc"
	ask(newSource(t, address, func(c *Config) { c.BearerToken = "abc" }))

	write("pa:ss\n")
	want = "Basic dXNlcjpwYTpzcw=="
	ask(newSource(t, address, func(c *Config) {
		c.Username = "user"
		c.PasswordFile = tokenFile
	}))

	write("first")
	s := newSource(t, address, func(c *Config) { c.BearerTokenFile = tokenFile })
	want = "Bearer first"
	ask(s)
	write("second")
	want = "Bearer second"
	ask(s)

	if err := os.Remove(tokenFile); err != nil {
		t.Fatal(err)
	}

	_, err := s.Instant(t.Context(), "up", time.Unix(1, 0))
	if err == nil || !strings.Contains(err.Error(), tokenFile) || strings.Contains(err.Error(), "attempts") {
		t.Errorf("error %v, want one that names %s, at once", err, tokenFile)
	}
}

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()

	a := &authority{dir: t.TempDir()}
	a.key, a.cert = a.sign(t, "authority", func(c *x509.Certificate) {
		c.IsCA = true
		c.BasicConstraintsValid = true
		c.KeyUsage = x509.KeyUsageCertSign
	})

	return a
}

// sign writes name.crt and name.key.
func (a *authority) sign(t *testing.T, name string, change func(*x509.Certificate)) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}

	change(template)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent = template
		signer = key
	}

	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "PRIVATE KEY", Bytes: rawKey},
	} {
		if err := os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return key, cert
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	a.sign(t, "server", func(c *x509.Certificate) { c.DNSNames = []string{"prometheus.monitoring.svc"} })
	a.sign(t, "client", func(*x509.Certificate) {})

	pair, err := tls.LoadX509KeyPair(a.file("server.crt"), a.file("server.key"))
	if err != nil {
		t.Fatal(err)
	}

	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	server := httptest.NewUnstartedServer(answerWith(200, "application/json", emptyVector))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12,
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)

	whole := TLSConfig{
		CAFile: a.file("authority.crt"), ServerName: "prometheus.monitoring.svc",
		CertFile: a.file("client.crt"), KeyFile: a.file("client.key"),
	}

	for _, c := range []struct {
		name   string
		change func(*TLSConfig)
		want   string
	}{
		{"whole", func(*TLSConfig) {}, ""},
		{"not verified", func(c *TLSConfig) {
			c.CAFile = ""
			c.ServerName = ""
			c.InsecureSkipVerify = true
		}, ""},
		{"no CA", func(c *TLSConfig) { c.CAFile = "" }, "CA file"},
		{"another name", func(c *TLSConfig) { c.ServerName = "" }, "server name"},
		{"no client certificate", func(c *TLSConfig) { c.CertFile, c.KeyFile = "", "" }, "client certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSource(t, server.URL, func(cfg *Config) {
				cfg.TLS = whole
				c.change(&cfg.TLS)
			})
			impatient(s)

			_, err := s.Instant(t.Context(), "up", time.Unix(1, 0))
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}

	cfg := DefaultConfig()
	cfg.Address = server.URL
	cfg.TLS = TLSConfig{CAFile: a.file("none.crt")}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "none.crt") {
		t.Errorf("error %v, want one that names the CA file", err)
	}
}
