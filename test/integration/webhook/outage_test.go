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
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/internal/kube/pki"
)

// TestCranedDownBlocksNoPod checks that pods can be created while craned is killed or hangs. Only changes of the spec of kinds that
// act on workloads need craned; changes of labels and finalizers, and deletions, do not.
func TestCranedDownBlocksNoPod(t *testing.T) {
	c := newClientset(t)
	p := startWebhooks(t)
	scaler := createUntilEnd(t, strings.Replace(probeEHPA, "metadata: {generateName: probe-}", "metadata: {name: stays, finalizers: [test.crane.io/held]}", 1))
	t.Cleanup(func() { // also if the test fails early
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
	// timeoutSeconds is 2; the rest is for a slow machine.
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("craned hangs: the creation of a pod took %s, want at most 20 s", took)
	}

	p.Kill()
	if _, err := newPod(t.Context(), c, nil); err != nil {
		t.Errorf("craned is killed: %v", err)
	}

	if _, _, err := createDryRun(t.Context(), "{apiVersion: analysis.crane.io/v1alpha1, kind: RecommendationRule, metadata: {name: r}, "+
		"spec: {resourceSelectors: [], recommenders: [], namespaceSelector: {any: true}}}"); err != nil {
		t.Errorf("craned is killed: rule: %v", err)
	}
	if _, _, err := createDryRun(t.Context(), probeEHPA); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("craned is killed: an autoscaler was accepted without validation: %v", err)
	}

	if _, _, err := update(t.Context(), scaler, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) }); err != nil {
		t.Errorf("craned is killed: labels: %v", err)
	}

	client, _, err := resourceOf(scaler)
	if err != nil {
		t.Fatal(err)
	}

	if err := client.Delete(t.Context(), "stays", metav1.DeleteOptions{}); err != nil {
		t.Errorf("craned is killed: deletion: %v", err)
	}
	if _, _, err := update(t.Context(), scaler, func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }); err != nil {
		t.Errorf("craned is killed: the last finalizer: %v", err)
	}
}

// TestDrain checks that craned answers webhook calls between a signal and its end, and closes each connection with the answer: the API server
// calls with HTTP/1.1 through a Service, and a call on a connection that the end of the process closes would fail.
func TestDrain(t *testing.T) {
	p := startCraned(t, "--shutdown-delay-duration=10m")
	client := &http.Client{Timeout: waitTimeout, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}},
	}}
	defer client.CloseIdleConnections()

	closes := func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+p.webhooks+"/mutate--v1-pod", strings.NewReader("{}"))
		if err != nil {
			return false, err
		}

		response, err := client.Do(request)
		if err != nil {
			return false, err
		}
		defer response.Body.Close()

		_, err = io.Copy(io.Discard, response.Body)
		return response.Close, err
	}

	eventually(t, "the webhooks keep connections", func(ctx context.Context) error {
		closed, err := closes(ctx)
		if err == nil && closed {
			err = errors.New("the connection is closed")
		}

		return err
	})

	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the webhooks answer and close connections", func(ctx context.Context) error {
		closed, err := closes(ctx)
		if err == nil && !closed {
			err = errors.New("the connection is kept")
		}

		return err
	})

	p.Kill()
}

// servedCertificate returns the certificate that is served at an address.
func servedCertificate(ctx context.Context, address string) (*x509.Certificate, error) {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// TestExpiredCertificateIsRenewed writes expired certificates into the Secret and checks that craned replaces them without a
// restart, and that the API server trusts the new ones.
func TestExpiredCertificateIsRenewed(t *testing.T) {
	p := startWebhooks(t)
	then := func() time.Time { return time.Now().Add(-2 * 365 * 24 * time.Hour) }
	old, err := pki.NewAuthority("old", 365*24*time.Hour, then)
	if err != nil {
		t.Fatal(err)
	}

	pair, err := old.IssueServingFor(90*24*time.Hour, "127.0.0.1", "craned-webhook.crane-system.svc")
	if err != nil {
		t.Fatal(err)
	}

	c := newClientset(t)
	eventually(t, "expired certificates are written", func(ctx context.Context) error {
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

		served, err := servedCertificate(ctx, p.webhooks)
		if err != nil {
			return err
		}

		if !served.Equal(stored) || time.Now().After(served.NotAfter) {
			return fmt.Errorf("the served certificate expires on %s, the stored one on %s", served.NotAfter, stored.NotAfter)
		}

		return nil
	})

	awaitWebhooks(t)
	select {
	case <-p.Done():
		t.Error("craned ended, want it running")
	default:
	}
}

// TestReplicasAgree starts two replicas at once without a Secret and checks that both serve the same certificate, and that a later
// replica writes nothing.
func TestReplicasAgree(t *testing.T) {
	c := newClientset(t)
	if err := c.CoreV1().Secrets(namespace).Delete(t.Context(), secret, metav1.DeleteOptions{}); err != nil && !strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}

	a := startCraned(t)
	b := startCraned(t)
	installWebhooks(t, b.webhooks)
	awaitWebhooks(t)

	eventually(t, "both replicas serve one certificate", func(ctx context.Context) error {
		of, err := servedCertificate(ctx, a.webhooks)
		if err != nil {
			return err
		}

		other, err := servedCertificate(ctx, b.webhooks)
		if err != nil {
			return err
		}

		if !of.Equal(other) {
			return errors.New("the certificates differ")
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

	eventually(t, "the third replica is ready", func(ctx context.Context) error {
		served, err := servedCertificate(ctx, again.webhooks)
		if err == nil && served.VerifyHostname("127.0.0.1") != nil {
			err = errors.New("the certificate is not valid for this address")
		}

		return err
	})

	if after := versions(); after != before {
		t.Errorf("a restart changed resource versions %s to %s, want no change", before, after)
	}
}
