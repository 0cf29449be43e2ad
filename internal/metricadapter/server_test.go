// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"crane.io/crane/internal/kube/pki"
)

// fakeAuthorizer records access reviews.
type fakeAuthorizer struct {
	allow func(authorizer.Attributes) bool
	asked []string
}

func (r *fakeAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.asked = append(r.asked, strings.Join([]string{a.GetUser().GetName(), a.GetVerb(), a.GetNamespace(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetName(), a.GetPath()}, "|"))
	if r.allow(a) {
		return authorizer.DecisionAllow, "", nil
	}

	return authorizer.DecisionNoOpinion, "no", nil
}

// TestWideRights checks that access to a whole group costs one review, that other users get the one metric alone, and that the rule
// covers metrics only.
func TestWideRights(t *testing.T) {
	metric := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "hpa"}, Verb: "list", Namespace: "shop", APIGroup: "external.metrics.k8s.io", APIVersion: "v1beta1",
		Resource: "queue", ResourceRequest: true,
	}
	page := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "hpa"}, Verb: "get", Path: "/metrics"}

	other := metric
	other.APIGroup = "apps"
	every := func(a authorizer.Attributes) bool { return a.GetResource() == "*" }
	for name, c := range map[string]struct {
		attributes authorizer.AttributesRecord
		allow      func(authorizer.Attributes) bool
		want       authorizer.Decision
		asked      string
	}{
		"everything":         {metric, every, authorizer.DecisionAllow, "hpa|list||external.metrics.k8s.io|*|||"},
		"one metric":         {metric, func(a authorizer.Attributes) bool { return a.GetNamespace() == "shop" }, authorizer.DecisionAllow, "hpa|list||external.metrics.k8s.io|*|||;hpa|list|shop|external.metrics.k8s.io|queue|||"},
		"nothing":            {metric, func(authorizer.Attributes) bool { return false }, authorizer.DecisionNoOpinion, "hpa|list||external.metrics.k8s.io|*|||;hpa|list|shop|external.metrics.k8s.io|queue|||"},
		"a page":             {page, every, authorizer.DecisionNoOpinion, "hpa|get||||||/metrics"},
		"another API's name": {other, every, authorizer.DecisionNoOpinion, "hpa|list|shop|apps|queue|||"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &fakeAuthorizer{allow: c.allow}
			got, _, err := groupAuthorizer{r}.Authorize(t.Context(), c.attributes)
			if got != c.want || err != nil || strings.Join(r.asked, ";") != c.asked {
				t.Errorf("Authorize() = %v, %v after the reviews %q, want %v after %q", got, err, r.asked, c.want, c.asked)
			}
		})
	}
}

// countingListener counts notifications.
type countingListener struct{ count int }

func (l *countingListener) Enqueue() { l.count++ }

// TestKeptCertificate checks that a renewed certificate is served and notified once, and that a missing one keeps the previous one.
func TestKeptCertificate(t *testing.T) {
	authority, err := pki.NewAuthority("test", time.Hour, time.Now)
	if err != nil {
		t.Fatal(err)
	}

	issue := func() *tls.Certificate {
		pair, err := authority.IssueServingFor(time.Minute, "a.b.svc")
		if err != nil {
			t.Fatal(err)
		}

		both, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
		if err != nil {
			t.Fatal(err)
		}

		return &both
	}

	var current *tls.Certificate
	k := &certificateProvider{current: func() (*tls.Certificate, error) {
		if current == nil {
			return nil, errors.New("none")
		}

		return current, nil
	}}

	l := &countingListener{}
	k.AddListener(l)

	if k.refresh() == nil || l.count != 0 {
		t.Fatalf("refresh() without a certificate notified %d times, want an error and no notification", l.count)
	}

	for i := range 2 {
		current = issue()
		for range 2 {
			if err := k.refresh(); err != nil || l.count != i+1 {
				t.Fatalf("refresh() with certificate %d = %v after %d notifications, want nil after %d", i, err, l.count, i+1)
			}
		}

		got, err := tls.X509KeyPair(k.CurrentCertKeyContent())
		if err != nil || !got.Leaf.Equal(current.Leaf) {
			t.Errorf("the certificate is %v, %v, want the current one %v", got.Leaf, err, current.Leaf)
		}
	}

	last := current.Leaf
	current = nil

	if k.refresh() == nil {
		t.Error("refresh() after the certificate is gone = nil, want an error")
	}
	if got, err := tls.X509KeyPair(k.CurrentCertKeyContent()); err != nil || !got.Leaf.Equal(last) {
		t.Errorf("the certificate is %v, %v, want the last one %v", got.Leaf, err, last)
	}
}

// TestFlags checks the flags of gocrane with their defaults, and the validation of all flags.
func TestFlags(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o := NewOptions()
	o.AddFlags(fs)

	for name, want := range map[string]string{
		"secure-port": "6443", "remote-adapter": "false", "remote-adapter-service-namespace": "", "remote-adapter-service-name": "",
		"remote-adapter-service-port": "6443", "api-qps": "300", "api-burst": "400", "lister-kubeconfig": "", "discovery-interval": "10m0s",
		"authentication-kubeconfig": "", "authorization-kubeconfig": "", "tls-cert-file": "", "msg": "",
	} {
		if f := fs.Lookup(name); f == nil || f.DefValue != want {
			t.Errorf("flag %s: %+v, want %q", name, f, want)
		}
	}

	if err := o.Validate().ToAggregate(); err != nil {
		t.Errorf("Validate() of the defaults = %v, want nil", err)
	}

	err := fs.Parse([]string{
		"--secure-port=0", "--api-qps=0", "--api-burst=0", "--discovery-interval=0", "--metrics-relist-interval=-1s", "--service-name=A",
		"--prometheus-adapter-config=x", "--prometheus-address=ftp://x", "--prometheus-adapter-extension-labels=a",
		"--remote-adapter", "--remote-adapter-service-name=other", "--remote-adapter-service-port=0", "--remote-adapter-address=x", "--log-format=xml",
	})
	if err != nil {
		t.Fatal(err)
	}

	err = o.Validate().ToAggregate()
	for _, want := range []string{
		"--secure-port", "--api-qps", "--api-burst", "--discovery-interval", "--metrics-relist-interval", "--service-name", "--prometheus-address",
		"--prometheus-adapter-extension-labels", "--remote-adapter-service-namespace", "--remote-adapter-service-port", "--remote-adapter-address", "--log-format",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() = %v, want an error that names %s", err, want)
		}
	}

	if strings.Contains(err.Error(), "--remote-adapter-service-name:") {
		t.Errorf("Validate() = %v, want no error for the valid name of the service", err)
	}

	self := NewOptions()
	self.Remote = RemoteAdapter{Enabled: true, Namespace: self.Namespace, Service: self.Service, Port: 443}
	if err := self.Validate().ToAggregate(); err == nil || !strings.Contains(err.Error(), "itself") {
		t.Errorf("Validate() with this adapter as the other one = %v, want an error with %q", err, "itself")
	}
}
