// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	testingclock "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/craned/admission"
	"crane.io/crane/internal/kube/certificates"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/kube/podwebhook"
	"crane.io/crane/test/integration/harness"
)

// TestRotationFailsNoRequest rotates short-lived certificates with a fake clock and checks that no request to a webhook fails while
// the CA and the serving certificate are renewed and the old CA is removed.
func TestRotationFailsNoRequest(t *testing.T) {
	c := newClientset(t)
	address := harness.FreeAddress(t)
	clk := testingclock.NewFakeClock(time.Now()) // Certificates are valid from one hour before their creation, so that the clock may be up to an hour fast.
	startServer(t, address, clk)
	installWebhooks(t, address)
	awaitWebhooks(t)
	barrier := newBarrier(t, c)

	var requests, failures atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			for ctx.Err() == nil {
				_, _, err := createDryRun(ctx, fmt.Sprintf(podQOS, "labelSelector: {matchLabels: {a: b}}"))
				if ctx.Err() != nil {
					return
				}

				requests.Add(1)
				if err != nil {
					failures.Add(1)
					t.Errorf("at %s of the fake clock: %v, want no failure", clk.Now().Format(time.TimeOnly), err)
				}
			}
		})
	}

	seen := map[string]bool{}
	last := ""
	most := 0
	for range 40 {
		clk.Step(time.Minute)
		bundle, serving := awaitRotation(t, c, clk)
		seen[serving] = true
		most = max(most, bytes.Count(bundle, []byte("BEGIN CERTIFICATE")))

		if string(bundle) != last {
			last = string(bundle)
			barrier.wait(t)
		}
	}

	cancel()
	running.Wait()

	if n := requests.Load(); n < 10 || failures.Load() > 0 {
		t.Errorf("%d of %d requests failed, want none of 10 or more", failures.Load(), n)
	}
	// In 40 minutes, the CA is renewed every 20 and the serving certificate every 6 and with each CA.
	if len(seen) < 4 || most != 2 {
		t.Errorf("%d serving certificates and up to %d CAs, want 4 or more and 2", len(seen), most)
	}

	t.Logf("%d requests, %d serving certificates", requests.Load(), len(seen))
}

// startServer serves webhooks in the test process with a fake clock.
func startServer(t *testing.T, address string, clk *testingclock.FakeClock) {
	t.Helper()

	host, port, _ := strings.Cut(address, ":")
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}

	objects, err := dynamic.NewForConfig(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	chain := podwebhook.NewChain(nil)
	endpoints, err := admission.Endpoints(admission.CachedFacts{Namespace: namespace}, chain, admission.EvictionGuard{})
	if err != nil {
		t.Fatal(err)
	}

	keeper, err := certificates.New(certificates.Config{
		Clients: newClientset(t), Dynamic: objects, Namespace: namespace, Secret: rotatedSecret, Hosts: []string{host}, Clock: clk, Manager: fieldManager,
		Targets: []certificates.Target{
			certificates.ValidatingWebhooks("crane"), certificates.MutatingWebhooks("crane"), certificates.MutatingWebhooks("crane-pods"),
		},
		Lifetimes: certificates.Lifetimes{
			Authority: 40 * time.Minute, AuthorityRenewal: 20 * time.Minute, Serving: 12 * time.Minute, ServingRenewal: 6 * time.Minute, Overlap: 3 * time.Minute,
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	server := admission.NewServer(admission.ServerOptions{Host: host, Port: n, Rotator: keeper}, endpoints)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()

	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}

		err := newClientset(t).CoreV1().Secrets(namespace).Delete(context.WithoutCancel(t.Context()), rotatedSecret, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})

	eventually(t, "the server serves", func(ctx context.Context) error {
		return server.Check(httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", http.NoBody))
	})
}

const rotatedSecret = "rotated"

// awaitRotation waits until the serving certificate needs no renewal and the webhook configuration contains the CA bundle of the
// Secret. It returns the bundle and the serial number of the serving certificate.
func awaitRotation(t *testing.T, c kubernetes.Interface, clk *testingclock.FakeClock) (bundle []byte, serial string) {
	t.Helper()

	eventually(t, "certificates are rotated", func(ctx context.Context) error {
		s, err := c.CoreV1().Secrets(namespace).Get(ctx, rotatedSecret, metav1.GetOptions{})
		if err != nil {
			return err
		}

		v, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "crane", metav1.GetOptions{})
		if err != nil {
			return err
		}

		for _, w := range v.Webhooks {
			if w.Name != sentinel && !bytes.Equal(w.ClientConfig.CABundle, s.Data["ca.crt"]) {
				return fmt.Errorf("%s has another CA bundle", w.Name)
			}
		}

		block, _ := pem.Decode(s.Data["tls.crt"])
		if block == nil {
			return errors.New("no certificate")
		}

		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}

		// It is renewed six minutes before its end, and the clock advances by one minute.
		if left := cert.NotAfter.Sub(clk.Now()); left < 5*time.Minute {
			return fmt.Errorf("the serving certificate has %s left", left)
		}

		bundle = s.Data["ca.crt"]
		serial = cert.SerialNumber.String()
		return nil
	})

	return bundle, serial
}

// sentinel is a webhook without a server in the same configuration, for ConfigMaps of one name. If the creation of such a ConfigMap
// fails, the API server uses the configuration that contains that name, and its CA bundle.
const sentinel = "sentinel.crane.io"

// barrier waits until the API server uses the current webhook configuration.
type barrier struct {
	clients kubernetes.Interface
	n       int
}

func newBarrier(t *testing.T, c kubernetes.Interface) *barrier {
	t.Helper()

	objects, err := manifest.ParseString(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: crane}
webhooks:
- name: ` + sentinel + `
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
  matchConditions: [{name: one, expression: "object.metadata.name == 'sentinel-0'"}]
`)
	if err != nil {
		t.Fatal(err)
	}

	applier, err := manifest.NewApplier(control.Config(), "webhook-sentinel")
	if err != nil {
		t.Fatal(err)
	}

	if err := applier.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}

	return &barrier{clients: c}
}

// wait waits until the API server uses the current configuration.
func (b *barrier) wait(t *testing.T) {
	t.Helper()

	b.n++
	name := "sentinel-" + strconv.Itoa(b.n)
	eventually(t, "the sentinel is written", func(ctx context.Context) error {
		v, err := b.clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "crane", metav1.GetOptions{})
		if err != nil {
			return err
		}

		for i, w := range v.Webhooks {
			if w.Name != sentinel {
				continue
			}

			path := fmt.Sprintf("/webhooks/%d/", i)
			patch, err := json.Marshal([]map[string]any{
				{"op": "test", "path": path + "name", "value": sentinel},
				{"op": "replace", "path": path + "matchConditions/0/expression", "value": "object.metadata.name == '" + name + "'"},
			})
			if err != nil {
				return err
			}

			_, err = b.clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(ctx, "crane", types.JSONPatchType, patch, metav1.PatchOptions{})
			return err
		}

		return errors.New("no webhook " + sentinel)
	})

	eventually(t, "the API server uses the configuration", func(ctx context.Context) error {
		_, err := b.clients.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), sentinel) {
			return fmt.Errorf("creation of ConfigMap %s: %w", name, err)
		}

		return nil
	})
}
