// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
)

// bound is the timeout of operations that take milliseconds.
const bound = 2 * time.Minute

var secretResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// fixture is an API server with one Secret and one webhook configuration, and a clock.
type fixture struct {
	clients *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	clock   *testingclock.FakeClock

	mu        sync.Mutex
	version   int
	conflicts int // refused writes
}

func newFixture(objects ...runtime.Object) *fixture {
	w := &fixture{clients: fake.NewClientset(), clock: testingclock.NewFakeClock(epoch)}
	w.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		ValidatingWebhooks("").resource: "ValidatingWebhookConfigurationList",
		MutatingWebhooks("").resource:   "MutatingWebhookConfigurationList",
		APIService("", "", "").resource: "APIServiceList",
	}, objects...)

	// The fake server assigns no versions and refuses no outdated write; a real one does.
	w.clients.PrependReactor("*", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()

		write, ok := a.(clienttesting.CreateAction) // An update has the same methods.
		if !ok {
			return false, nil, nil
		}

		s := write.GetObject().(*corev1.Secret)
		had, err := w.clients.Tracker().Get(secretResource, a.GetNamespace(), s.Name)
		switch {
		case a.GetVerb() == "update" && err == nil && had.(*corev1.Secret).ResourceVersion != s.ResourceVersion:
			w.conflicts++
			return true, nil, apierrors.NewConflict(secretResource.GroupResource(), s.Name, errors.New("stale"))
		case a.GetVerb() == "create" && err == nil:
			w.conflicts++
		}

		w.version++
		s.ResourceVersion = strconv.Itoa(w.version)
		return false, nil, nil
	})

	return w
}

func webhookConfiguration(n int) *unstructured.Unstructured {
	var webhooks []any
	for i := range n {
		webhooks = append(webhooks, map[string]any{"name": fmt.Sprintf("w%d.crane.io", i), "clientConfig": map[string]any{}})
	}

	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": "crane", "uid": "u", "resourceVersion": "1"}, "webhooks": webhooks,
	}}
}

// startRotator runs a Rotator for the duration of the test.
func (f *fixture) startRotator(t *testing.T) *Rotator {
	t.Helper()

	k, err := New(Config{
		Clients: f.clients, Dynamic: f.dynamic, Namespace: "crane-system", Secret: "certs", Hosts: hosts,
		Targets: []Target{ValidatingWebhooks("crane"), MutatingWebhooks("not-there")}, Manager: "test", Lifetimes: DefaultLifetimes(), Clock: f.clock,
	})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	return k
}

// eventually polls, and advances the clock a little at each attempt.
func (f *fixture) eventually(t *testing.T, what string, check func() error) {
	t.Helper()

	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, bound, true, func(context.Context) (bool, error) {
		if last = check(); last != nil {
			f.clock.Step(time.Second)
		}

		return last == nil, nil
	}); err != nil {
		t.Fatalf("%s: not within the time (%v), last error %v, want none", what, err, last)
	}
}

func (f *fixture) secret() (*corev1.Secret, error) {
	return f.clients.CoreV1().Secrets("crane-system").Get(context.Background(), "certs", metav1.GetOptions{})
}

// distributedBundle returns the bundle in the first webhook of the configuration.
func (f *fixture) distributedBundle() ([]byte, error) {
	o, err := f.dynamic.Resource(ValidatingWebhooks("").resource).Get(context.Background(), "crane", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}

	webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	var first []byte
	for i, x := range webhooks {
		text, _, _ := unstructured.NestedString(x.(map[string]any), "clientConfig", "caBundle")
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}

		if i == 0 {
			first = b
		} else if !bytes.Equal(first, b) {
			return nil, fmt.Errorf("webhook %d has another bundle", i)
		}
	}

	return first, nil
}

// checkServed verifies that a caller with the distributed bundle accepts the served certificate.
func (f *fixture) checkServed(k *Rotator) error {
	if err := k.Check(); err != nil {
		return err
	}

	cert, err := k.GetCertificate(nil)
	if err != nil {
		return err
	}

	bundle, err := f.distributedBundle()
	if err != nil {
		return err
	}

	return verifyServing(bundle, &material{serving: cert}, f.clock.Now())
}

func TestRotator_Issues(t *testing.T) {
	w := newFixture(webhookConfiguration(3))
	k := w.startRotator(t)
	w.eventually(t, "served", func() error { return w.checkServed(k) })

	s, err := w.secret()
	if err != nil || s.Type != corev1.SecretTypeTLS {
		t.Fatalf("Secret of type %q, %v, want %s", s.Type, err, corev1.SecretTypeTLS)
	}
}

func TestRotator_TwoReplicas(t *testing.T) {
	w := newFixture(webhookConfiguration(1))
	a := w.startRotator(t)
	b := w.startRotator(t)

	same := func() error {
		if err := errors.Join(w.checkServed(a), w.checkServed(b)); err != nil {
			return err
		}

		ca, _ := a.GetCertificate(nil)
		cb, _ := b.GetCertificate(nil)
		if !ca.Leaf.Equal(cb.Leaf) {
			return errors.New("the replicas serve different certificates")
		}

		return nil
	}

	w.eventually(t, "both serve one certificate", same)
	// A renewal: one of them writes, the other uses the result.
	old, _ := a.GetCertificate(nil)
	w.clock.Step(61 * day)

	w.eventually(t, "both serve the next certificate", func() error {
		if now, _ := a.GetCertificate(nil); now.Leaf.Equal(old.Leaf) {
			return errors.New("still the old one")
		}

		return same()
	})
}

func TestRotator_RenewsExpired(t *testing.T) {
	w := newFixture(webhookConfiguration(2))
	k := w.startRotator(t)
	w.eventually(t, "served", func() error { return w.checkServed(k) })

	for _, jump := range []time.Duration{91 * day, 400 * day, -30 * day} {
		w.clock.SetTime(w.clock.Now().Add(jump))
		// Timers of a real clock continue when it is set back; those of this one wait, so that a change has to wake the Rotator.
		o, err := w.dynamic.Resource(ValidatingWebhooks("").resource).Get(t.Context(), "crane", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		o.SetLabels(map[string]string{"touched": strconv.FormatInt(int64(jump/day)+1000, 10)})
		if _, err := w.dynamic.Resource(ValidatingWebhooks("").resource).Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		w.eventually(t, "served after "+jump.String(), func() error { return w.checkServed(k) })
	}
}

func TestRotator_RepairsSecret(t *testing.T) {
	for name, spoil := range map[string]func(*corev1.Secret){
		"all nonsense":     func(s *corev1.Secret) { s.Data = map[string][]byte{keyBundle: []byte("x"), "mine": []byte("y")} },
		"empty":            func(s *corev1.Secret) { s.Data = nil },
		"serving nonsense": func(s *corev1.Secret) { s.Data[keyServing] = []byte("-----BEGIN") },
		"other key":        func(s *corev1.Secret) { s.Data[keyAuthority] = s.Data[keyServingKey] },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(webhookConfiguration(1))
			k := w.startRotator(t)
			w.eventually(t, "served", func() error { return w.checkServed(k) })
			bundle, _ := w.distributedBundle()

			s, err := w.secret()
			if err != nil {
				t.Fatal(err)
			}

			s = s.DeepCopy()
			spoil(s)

			if _, err := w.clients.CoreV1().Secrets("crane-system").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}

			w.eventually(t, "repaired", func() error {
				s, err := w.secret()
				if err != nil {
					return err
				}

				m, err := parse(s.Data, w.clock.Now)
				if err != nil {
					return err
				}

				if fault := m.servingProblem(w.clock.Now()); fault != "" {
					return errors.New(fault)
				}

				if !bytes.Equal(m.bundle(), bundle) {
					return errors.New("another authority, though the old one was known")
				}

				return w.checkServed(k)
			})

			if s, _ := w.secret(); name == "all nonsense" && string(s.Data["mine"]) != "y" {
				t.Errorf("key mine of the Secret is %q, want y, as it was", s.Data["mine"])
			}
		})
	}

	t.Run("nonsense from the beginning", func(t *testing.T) {
		w := newFixture(webhookConfiguration(1))
		if _, err := w.clients.CoreV1().Secrets("crane-system").Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "certs"}, Data: map[string][]byte{keyBundle: {1}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		k := w.startRotator(t)
		w.eventually(t, "served", func() error { return w.checkServed(k) })
	})

	t.Run("deleted", func(t *testing.T) {
		w := newFixture(webhookConfiguration(1))
		k := w.startRotator(t)
		w.eventually(t, "served", func() error { return w.checkServed(k) })
		old, _ := w.distributedBundle()

		if err := w.clients.CoreV1().Secrets("crane-system").Delete(t.Context(), "certs", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}

		w.eventually(t, "issued anew", func() error {
			if now, err := w.distributedBundle(); err != nil || bytes.Contains(now, old) {
				return fmt.Errorf("the old authority is still trusted: %w", err)
			}

			return w.checkServed(k)
		})
	})
}

// TestRotator_RestoresBundle checks that a configuration that was applied again without a bundle gets it back.
func TestRotator_RestoresBundle(t *testing.T) {
	w := newFixture(webhookConfiguration(1))
	k := w.startRotator(t)
	w.eventually(t, "served", func() error { return w.checkServed(k) })
	next := webhookConfiguration(4)
	next.SetResourceVersion("2")

	if _, err := w.dynamic.Resource(ValidatingWebhooks("").resource).Update(t.Context(), next, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	w.eventually(t, "served again", func() error { return w.checkServed(k) })
}

func TestTargetPatch_APIService(t *testing.T) {
	service := map[string]any{"namespace": "crane-system", "name": "metric-adapter"}
	target := APIService("v1beta1.external.metrics.k8s.io", "crane-system", "metric-adapter")
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"insecureSkipTLSVerify": true, "service": service}}}

	ops, err := target.patch(o, []byte("b"))
	if err != nil || len(ops) != 2 || ops[0].Path != "/spec/insecureSkipTLSVerify" || ops[1].Path != "/spec/caBundle" {
		t.Errorf("patch of an APIService = %v, %v, want its TLS verification and its bundle", ops, err)
	}

	for name, spec := range map[string]map[string]any{
		"nothing is to do":        {"caBundle": base64.StdEncoding.EncodeToString([]byte("b")), "service": service},
		"another adapter answers": {"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "keda", "name": "metric-adapter"}},
		"another service answers": {"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "crane-system", "name": "other"}},
		"the API server is asked": {},
	} {
		o.Object["spec"] = spec
		if ops, err := target.patch(o, []byte("b")); err != nil || len(ops) != 0 {
			t.Errorf("patch = %v, %v, want nothing: %s", ops, err, name)
		}
	}

	if _, err := ValidatingWebhooks("x").patch(&unstructured.Unstructured{Object: map[string]any{"webhooks": []any{"text"}}}, nil); err == nil {
		t.Error("patch of a webhook that is a text = nil, want an error")
	}
}

func TestNew_MissingClients(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("New without clients = nil, want an error")
	}
}
