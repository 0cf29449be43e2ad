// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// fakeKubelet serves /configz with a certificate for 127.0.0.1.
type fakeKubelet struct {
	*httptest.Server

	mu       sync.Mutex
	status   int
	body     string
	requests []string // path and credentials
}

func newKubelet(t *testing.T) *fakeKubelet {
	t.Helper()

	k := &fakeKubelet{status: http.StatusOK, body: `{"kubeletconfig":{"reservedSystemCPUs":"0"}}`}
	k.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()

		k.requests = append(k.requests, r.URL.Path+" "+r.Header.Get("Authorization"))
		if k.status == http.StatusFound {
			w.Header().Set("Location", k.body)
		}

		w.WriteHeader(k.status)
		_, _ = w.Write([]byte(k.body))
	}))

	k.Config.ErrorLog = log.New(io.Discard, "", 0)
	k.StartTLS()
	t.Cleanup(k.Close)

	return k
}

func (k *fakeKubelet) setResponse(status int, body string) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.status = status
	k.body = body
}

func (k *fakeKubelet) requestLog() []string {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.requests
}

// authority returns the self-signed certificate.
func (k *fakeKubelet) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.Certificate().Raw})
}

// node returns a Node whose kubelet endpoint is this server.
func (k *fakeKubelet) node() *corev1.Node {
	_, port, _ := net.SplitHostPort(k.Listener.Addr().String())
	n, _ := strconv.Atoi(port)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status: corev1.NodeStatus{
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n"}, {Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(n)}},
		},
	}
}

// client returns a client with a token that trusts authority; nil for none.
func (k *fakeKubelet) client(t *testing.T, authority []byte) *KubeletClient {
	t.Helper()

	return &KubeletClient{
		Credentials: &rest.Config{Host: "https://example.com", BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: authority, ServerName: "kubernetes"}},
		Root:        writeHost(t, nil), Dir: kubeletDir,
	}
}

// newAuthority returns an unrelated certificate authority.
func newAuthority(t *testing.T) []byte {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

func TestConfigz(t *testing.T) {
	k := newKubelet(t)
	content, err := k.client(t, k.authority()).Configz(t.Context(), k.node())
	if err != nil || !strings.Contains(string(content), "reservedSystemCPUs") {
		t.Errorf("Configz = %s, %v, want a configuration with reservedSystemCPUs", content, err)
	}
	if got := k.requestLog(); len(got) != 1 || got[0] != "/configz Bearer secret" {
		t.Errorf("the kubelet got requests %q, want one to /configz with the token", got)
	}

	// A certificate in the kubelet's own directory needs no authority.
	c := k.client(t, nil)
	c.Root = writeHost(t, map[string]string{"var/lib/kubelet/pki/kubelet.crt": "no certificate\n" + string(k.authority())})
	if _, err := c.Configz(t.Context(), k.node()); err != nil {
		t.Error(err)
	}
}

// TestTokenIsForTheKubelet checks that the token is sent only to a verified kubelet.
func TestTokenIsForTheKubelet(t *testing.T) {
	k := newKubelet(t)
	for name, c := range map[string]*KubeletClient{
		"without an authority": k.client(t, nil),
		"of another authority": k.client(t, newAuthority(t)),
		"one that trusts all":  {Credentials: &rest.Config{BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, Root: writeHost(t, nil), Dir: kubeletDir},
	} {
		if _, err := c.Configz(t.Context(), k.node()); !errors.Is(err, errUntrusted) {
			t.Errorf("%s: Configz = %v, want errUntrusted", name, err)
		}
	}

	if got := k.requestLog(); len(got) != 0 {
		t.Errorf("the untrusted server got requests %q, want none", got)
	}

	roots := x509.NewCertPool()
	roots.AddCert(k.Certificate())

	shown := []*x509.Certificate{k.Certificate()}
	if err := verifyCertificate(shown, roots, nil, "n", "127.0.0.1"); err != nil {
		t.Error(err)
	}
	if err := verifyCertificate(shown, roots, nil, "n", "10.0.0.1"); !errors.Is(err, errUntrusted) {
		t.Errorf("for another node: %v", err)
	}
	if err := verifyCertificate(nil, roots, nil, "n"); !errors.Is(err, errUntrusted) {
		t.Errorf("no certificate: %v", err)
	}

	// Redirects are not followed.
	elsewhere := newKubelet(t)
	k.setResponse(http.StatusFound, elsewhere.URL+"/configz")

	if _, err := k.client(t, k.authority()).Configz(t.Context(), k.node()); err == nil || len(elsewhere.requestLog()) != 0 {
		t.Errorf("Configz of a redirect = %v with requests %q at its target, want an error and none", err, elsewhere.requestLog())
	}
}

func TestConfigzRefused(t *testing.T) {
	k := newKubelet(t)
	c := k.client(t, k.authority())
	for status, want := range map[int]string{http.StatusForbidden: "nodes/configz", http.StatusNotFound: "enableDebuggingHandlers", http.StatusMethodNotAllowed: "enableDebuggingHandlers"} {
		k.setResponse(status, "no")
		if _, err := c.Configz(t.Context(), k.node()); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("status %d: Configz = %v, want errRefused with %q", status, err, want)
		}
	}

	k.setResponse(http.StatusUnauthorized, "no")
	if _, err := c.Configz(t.Context(), k.node()); err == nil || errors.Is(err, errRefused) {
		t.Errorf("unauthorized: %v", err)
	}

	k.setResponse(http.StatusOK, strings.Repeat("x", maxConfigurationBytes+1))
	if _, err := c.Configz(t.Context(), k.node()); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("an answer without an end: %v", err)
	}

	nowhere := k.node()
	nowhere.Status.Addresses = nil
	if _, err := c.Configz(t.Context(), nowhere); err == nil || !strings.Contains(err.Error(), "has no kubelet address") {
		t.Errorf("without an address: %v", err)
	}

	k.Close()
	_, first := c.Configz(t.Context(), k.node())
	_, second := c.Configz(t.Context(), k.node())
	if first == nil || second == nil || first.Error() != second.Error() {
		t.Errorf("Configz of a closed server = %v, then %v, want the same error twice", first, second)
	}
}
