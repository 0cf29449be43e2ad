// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/redirect"
)

// NewClient returns an uncached client for the built-in types and those that add registers.
func NewClient(to *rest.Config, add ...func(*runtime.Scheme) error) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, register := range append(add, clientgoscheme.AddToScheme) {
		if err := register(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}

	return client.New(to, client.Options{Scheme: scheme})
}

// Namespace is a namespace of one test.
type Namespace struct {
	client.Client
	T    *testing.T
	Name string
	// Timeout bounds each wait.
	Timeout time.Duration
}

// NewNamespace creates a namespace whose name starts with prefix, and deletes it at the end of the test.
func NewNamespace(t *testing.T, c client.Client, prefix string, timeout time.Duration) *Namespace {
	t.Helper()

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), ns); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})

	return &Namespace{
		Client:  c,
		T:       t,
		Name:    ns.Name,
		Timeout: timeout,
	}
}

// Key returns the key of an object in the namespace.
func (n *Namespace) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: n.Name, Name: name}
}

// Eventually polls until check returns nil.
func (n *Namespace) Eventually(what string, check func(ctx context.Context) error) {
	n.T.Helper()
	Eventually(n.T.Context(), n.T, n.Timeout, what, check)
}

// CreateAll creates objects in the namespace.
func (n *Namespace) CreateAll(objects ...client.Object) {
	n.T.Helper()

	for _, o := range objects {
		o.SetNamespace(n.Name)
		if err := n.Create(n.T.Context(), o, client.FieldOwner("owner")); err != nil {
			n.T.Fatal(err)
		}
	}
}

// Remove deletes an object, if it exists.
func (n *Namespace) Remove(o client.Object) {
	n.T.Helper()

	if err := n.Delete(n.T.Context(), o); client.IgnoreNotFound(err) != nil {
		n.T.Fatal(err)
	}
}

// AwaitGone waits until an object of the type of o does not exist.
func (n *Namespace) AwaitGone(o client.Object, name string) {
	n.T.Helper()

	n.Eventually(fmt.Sprintf("%T %s is gone", o, name), func(ctx context.Context) error {
		err := n.Get(ctx, n.Key(name), o)
		if apierrors.IsNotFound(err) {
			return nil
		}

		return errors.Join(err, errors.New("it still exists"))
	})
}

// Await reads an object into o until check returns nil, and returns it.
func Await[T client.Object](n *Namespace, o T, name, what string, check func(T) error) T {
	n.T.Helper()

	n.Eventually(fmt.Sprintf("%T %s %s", o, name, what), func(ctx context.Context) error {
		if err := n.Get(ctx, n.Key(name), o); err != nil {
			return err
		}

		if err := check(o); err != nil {
			return fmt.Errorf("%w: %+v", err, o)
		}

		return nil
	})

	return o
}

// Change reads an object into o and patches the edited fields.
func Change[T client.Object](n *Namespace, o T, name string, edit func(T)) {
	n.T.Helper()

	if err := n.Get(n.T.Context(), n.Key(name), o); err != nil {
		n.T.Fatal(err)
	}

	before, ok := o.DeepCopyObject().(client.Object)
	edit(o)

	if !ok {
		n.T.Fatalf("the copy of %T is no object, want a client.Object", o)
	}

	if err := n.Patch(n.T.Context(), o, client.MergeFrom(before)); err != nil {
		n.T.Fatal(err)
	}
}

// InstallWebhooks lets the API server call the webhooks of config/ at an address until the test ends.
func InstallWebhooks(t *testing.T, to *rest.Config, admin client.Client, address string) {
	t.Helper()

	objects, err := manifest.ReadDir(config.Manifests, "webhook")
	if err != nil {
		t.Fatal(err)
	}

	applier, err := manifest.NewApplier(to, "webhook-test")
	if err != nil {
		t.Fatal(err)
	}

	for _, o := range objects {
		if !redirect.IsWebhookConfiguration(o) {
			continue
		}

		local, err := redirect.WebhookConfiguration(o, address)
		if err == nil {
			err = applier.Apply(t.Context(), local)
		}

		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			if err := admin.Delete(context.WithoutCancel(t.Context()), local); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})
	}
}

// FlatForecast returns the status of a metric that was forecast at a time: one series with a value each minute for two hours for each of
// values.
func FlatForecast(identifier, skill string, updated time.Time, values ...float64) predictionv1alpha1.PredictionMetricStatus {
	at := metav1.NewTime(updated)
	out := predictionv1alpha1.PredictionMetricStatus{
		ResourceIdentifier: identifier,
		Ready:              true,
		Skill:              skill,
		UpdateTime:         &at,
		LastSampleTime:     &at,
	}

	const minutes = 120
	for _, v := range values {
		text := strings.Fields(strings.Repeat(strconv.FormatFloat(v, 'f', 5, 64)+" ", minutes))
		out.Prediction = append(out.Prediction, MinuteSeries(updated, text))
	}

	return out
}

// MinuteSeries returns a forecast series with one value each minute.
func MinuteSeries(from time.Time, values []string) predictionv1alpha1.MetricTimeSeries {
	var out predictionv1alpha1.MetricTimeSeries
	for i, v := range values {
		out.Samples = append(out.Samples, predictionv1alpha1.Sample{Value: v, Timestamp: from.Add(time.Duration(i) * time.Minute).Unix()})
	}

	return out
}
