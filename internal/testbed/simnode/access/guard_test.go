// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

var now = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// authority is a temporary CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "ca"},
	}

	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	return authority{cert, key}
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a authority) client(t *testing.T, name string, notAfter time.Time, groups ...string) *x509.Certificate {
	t.Helper()

	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: now.Add(-time.Hour), NotAfter: notAfter,
		Subject: pkix.Name{CommonName: name, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}

	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	return cert
}

// fixture is an API server that allows everything to user "friend" and group "friends", and accepts the token "good".
type fixture struct {
	users, proxies             authority
	guard                      *Guard
	tokenReviews, rightReviews int
	broken                     bool
	clock                      time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()

	w := &fixture{users: newAuthority(t), proxies: newAuthority(t), clock: now}
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
		w.tokenReviews++
		r := a.(ktesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		if r.Spec.Token == "good" {
			r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "friend"}}
		}

		return true, r, nil
	})

	client.PrependReactor("create", "subjectaccessreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
		w.rightReviews++
		if w.broken {
			return true, nil, errors.New("the API server is away")
		}

		r := a.(ktesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		r.Status.Allowed = r.Spec.User == "friend" && r.Spec.Extra["scope"] == nil
		for _, g := range r.Spec.Groups {
			r.Status.Allowed = r.Status.Allowed || g == "friends"
		}

		return true, r, nil
	})

	w.guard = New(Config{
		Client: client, ClientCA: w.users.pool(), FrontProxyCA: w.proxies.pool(), FrontProxyNames: []string{"proxy"},
		Now: func() time.Time { return w.clock },
	})

	return w
}

func (f *fixture) call(cert *x509.Certificate, header http.Header) (int, string) {
	handler := f.guard.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "in") }),
		func(*http.Request) []Right {
			return []Right{{Path: &authorizationv1.NonResourceAttributes{Path: "/x", Verb: "get"}}}
		})

	req := httptest.NewRequest(http.MethodGet, "/x", nil)
	req.TLS = &tls.ConnectionState{}
	if cert != nil {
		req.TLS.PeerCertificates = []*x509.Certificate{cert}
	}
	if header != nil {
		req.Header = header
	}

	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, req)
	return rec.Code, rec.Body.String()
}

func TestWhoMayPass(t *testing.T) {
	w := newFixture(t)
	later := now.Add(time.Hour)
	remote := func(user string, more ...string) http.Header {
		h := http.Header{}
		h.Set("X-Remote-User", user)

		for i := 0; i+1 < len(more); i += 2 {
			h.Add(more[i], more[i+1])
		}

		return h
	}

	bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	for _, tc := range []struct {
		name   string
		cert   *x509.Certificate
		header http.Header
		want   int
	}{
		{"no credentials", nil, nil, 401},
		{"a friend's certificate", w.users.client(t, "friend", later), nil, 200},
		{"a friend's group", w.users.client(t, "x", later, "friends"), nil, 200},
		{"a stranger's certificate", w.users.client(t, "stranger", later), nil, 403},
		{"an expired certificate", w.users.client(t, "friend", now.Add(-time.Minute)), nil, 401},
		{"another authority's certificate", newAuthority(t).client(t, "friend", later), nil, 401},
		{"a certificate without a name", w.users.client(t, "", later, "friends"), nil, 401},
		{"the proxy for a friend", w.proxies.client(t, "proxy", later), remote("friend"), 200},
		{"the proxy for a group", w.proxies.client(t, "proxy", later), remote("x", "X-Remote-Group", "friends"), 200},
		{"the proxy with extra", w.proxies.client(t, "proxy", later), remote("friend", "X-Remote-Extra-Scope", "narrow"), 403},
		{"proxy without user", w.proxies.client(t, "proxy", later), nil, 401},
		{"another certificate of the proxy's authority", w.proxies.client(t, "other", later), remote("friend"), 401},
		{"a user who claims to be another", w.users.client(t, "stranger", later), remote("friend"), 403},
		{"headers alone", nil, remote("friend"), 401},
		{"a good token", nil, bearer("good"), 200},
		{"a bad token", nil, bearer("bad"), 401},
		{"an empty token", nil, bearer(" "), 401},
		{"a huge token", nil, bearer(strings.Repeat("x", maxTokenLength+1)), 401},
		{"basic auth", nil, http.Header{"Authorization": {"Basic Zm9vOmJhcg=="}}, 401},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, body := w.call(tc.cert, tc.header); got != tc.want {
				t.Errorf("Protect: status %d %s, want %d", got, body, tc.want)
			}
		})
	}
}

func TestAnswersAreRememberedForAWhile(t *testing.T) {
	w := newFixture(t)
	header := http.Header{"Authorization": {"Bearer good"}}
	for range 5 {
		if got, _ := w.call(nil, header); got != 200 {
			t.Fatalf("Protect with a good token: status %d, want 200", got)
		}
	}

	if w.tokenReviews != 1 || w.rightReviews != 1 {
		t.Errorf("five requests: %d reviews of the token, %d of the right; want 1 each", w.tokenReviews, w.rightReviews)
	}

	w.clock = w.clock.Add(allowedLife + time.Second)
	w.broken = true
	if got, body := w.call(nil, header); got != 500 || strings.Contains(body, "good") {
		t.Errorf("Protect without an API server: status %d %s, want 500 without the token", got, body)
	}

	w.broken = false
	w.clock = w.clock.Add(tokenLife)
	if got, _ := w.call(nil, header); got != 200 || w.tokenReviews != 2 {
		t.Errorf("Protect after %s: status %d, %d reviews of the token; want 200 and 2", tokenLife, got, w.tokenReviews)
	}
}

func TestCacheIsBounded(t *testing.T) {
	g := New(Config{Now: func() time.Time { return now }})
	for _, c := range []*utilcache.LRUExpireCache{g.tokens, g.rights} {
		for i := range 3 * maxEntries {
			c.Add(fmt.Sprint(i), i, time.Minute)
		}

		if n := len(c.Keys()); n > maxEntries {
			t.Errorf("cache has %d entries, want at most %d", n, maxEntries)
		}
	}
}
