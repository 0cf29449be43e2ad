// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/internal/kube/pki"
)

// TestCranedDownBlocksNoPod: with craned dead, and with craned that takes a call and never answers, pods are created. What does wait
// for craned is the spec of kinds that act on workloads; their labels, finalizers and deletion do not.
func TestCranedDownBlocksNoPod(t *testing.T) {
	c := clients(t)
	p := serve(t)
	scaler := keep(t, strings.Replace(probeEHPA, "metadata: {generateName: probe-}", "metadata: {name: stays, finalizers: [test.crane.io/held]}", 1))
	t.Cleanup(func() { // Also where the test ends early.
		ctx := context.WithoutCancel(t.Context())
		_, _, _ = update(ctx, scaler, func(o *unstructured.Unstructured) { o.SetFinalizers(nil) })
	})

	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err := newPod(t.Context(), c, nil)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Errorf("craned hangs: %v", err)
	}
	// Two seconds of timeoutSeconds; the rest is for a slow machine.
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("craned hangs: a pod took %s", took)
	}

	p.Kill()
	if _, err := newPod(t.Context(), c, nil); err != nil {
		t.Errorf("craned is dead: %v", err)
	}
	if _, _, err := create(t.Context(), "{apiVersion: analysis.crane.io/v1alpha1, kind: RecommendationRule, metadata: {name: r}, "+
		"spec: {resourceSelectors: [], recommenders: [], namespaceSelector: {any: true}}}"); err != nil {
		t.Errorf("craned is dead: a rule, which only computes: %v", err)
	}
	if _, _, err := create(t.Context(), probeEHPA); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("craned is dead: an autoscaler that nobody has looked at: %v", err)
	}
	if _, _, err := update(t.Context(), scaler, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) }); err != nil {
		t.Errorf("craned is dead: labels: %v", err)
	}
	client, _, err := resourceOf(scaler)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(t.Context(), "stays", metav1.DeleteOptions{}); err != nil {
		t.Errorf("craned is dead: deletion: %v", err)
	}
	if _, _, err := update(t.Context(), scaler, func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }); err != nil {
		t.Errorf("craned is dead: the last finalizer: %v", err)
	}
}

// leaf is the certificate that is served at an address.
func leaf(ctx context.Context, address string) (*x509.Certificate, error) {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// TestExpiredCertificateIsRenewed puts certificates of two years ago into the Secret. Without a restart there are others soon, and the
// API server knows them.
func TestExpiredCertificateIsRenewed(t *testing.T) {
	p := serve(t)
	then := func() time.Time { return time.Now().Add(-2 * 365 * 24 * time.Hour) }
	old, err := pki.NewAuthority("old", 365*24*time.Hour, then)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := old.IssueServingFor(90*24*time.Hour, "127.0.0.1", "craned-webhook.crane-system.svc")
	if err != nil {
		t.Fatal(err)
	}
	c := clients(t)
	eventually(t, "the Secret is spoilt", func(ctx context.Context) error {
		s, err := c.CoreV1().Secrets(namespace).Get(ctx, secret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.Data = map[string][]byte{"ca.crt": old.CertPEM(), "ca.key": old.KeyPEM(), "tls.crt": pair.CertPEM, "tls.key": pair.KeyPEM}
		_, err = c.CoreV1().Secrets(namespace).Update(ctx, s, metav1.UpdateOptions{})
		return err
	})
	eventually(t, "the Secret is renewed", func(ctx context.Context) error {
		s, err := c.CoreV1().Secrets(namespace).Get(ctx, secret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		block, _ := pem.Decode(s.Data["tls.crt"])
		if block == nil {
			return errors.New("no certificate")
		}
		stored, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		served, err := leaf(ctx, p.webhooks)
		if err != nil {
			return err
		}
		if !served.Equal(stored) || time.Now().After(served.NotAfter) {
			return fmt.Errorf("served is what ends on %s, stored what ends on %s", served.NotAfter, stored.NotAfter)
		}
		return nil
	})
	answers(t)
	select {
	case <-p.Done():
		t.Error("craned ended")
	default:
	}
}

// TestReplicasAgree starts two craned at once, without a Secret. Both serve one certificate of one authority, and either is enough.
func TestReplicasAgree(t *testing.T) {
	c := clients(t)
	if err := c.CoreV1().Secrets(namespace).Delete(t.Context(), secret, metav1.DeleteOptions{}); err != nil && !strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}
	a, b := startCraned(t), startCraned(t)
	configure(t, b.webhooks)
	answers(t)
	eventually(t, "one certificate", func(ctx context.Context) error {
		of, err := leaf(ctx, a.webhooks)
		if err != nil {
			return err
		}
		other, err := leaf(ctx, b.webhooks)
		if err != nil {
			return err
		}
		if !of.Equal(other) {
			return errors.New("they differ")
		}
		return nil
	})
	versions := func() string {
		s, err := c.CoreV1().Secrets(namespace).Get(t.Context(), secret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "crane", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s.ResourceVersion + "/" + v.ResourceVersion
	}
	before := versions()
	b.Kill()
	a.Kill()
	again := startCraned(t)
	eventually(t, "a third is ready", func(ctx context.Context) error {
		served, err := leaf(ctx, again.webhooks)
		if err == nil && served.VerifyHostname("127.0.0.1") != nil {
			err = errors.New("not for this address")
		}
		return err
	})
	if after := versions(); after != before {
		t.Errorf("a restart wrote something: %s, then %s", before, after)
	}
}
