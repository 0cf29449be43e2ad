// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/redirect"
	"crane.io/crane/test/integration/harness"
)

const (
	fieldManager = "webhook-test"
	// waitTimeout bounds each wait. On an idle machine a wait takes a second or two.
	waitTimeout = 90 * time.Second
	namespace   = "crane-system"
	secret      = "craned-certificates"
)

// craned is a running craned with webhooks.
type craned struct {
	*harness.Craned
	webhooks string // address of the webhooks
}

// startCraned runs craned with webhooks until the test ends. The API server does not call them yet.
func startCraned(t *testing.T, flags ...string) *craned {
	t.Helper()

	address := harness.FreeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	return &craned{
		Craned: harness.StartCraned(t, waitTimeout, control, binary, harness.NoPrometheus, append([]string{
			"--controllers=cost,recommendation", "--leader-elect=true", "--webhook-host=" + host, "--webhook-port=" + port,
		}, flags...)...),
		webhooks: address,
	}
}

// configurations returns the webhook configurations of config/webhook for an address.
func configurations(t *testing.T, address string) []*unstructured.Unstructured {
	t.Helper()

	objects, err := manifest.ReadDir(config.Manifests, "webhook")
	if err != nil {
		t.Fatal(err)
	}

	var out []*unstructured.Unstructured
	for _, o := range objects {
		if !redirect.IsWebhookConfiguration(o) {
			continue
		}

		local, err := redirect.WebhookConfiguration(o, address)
		if err != nil {
			t.Fatal(err)
		}

		out = append(out, local)
	}

	if len(out) != 3 {
		t.Fatalf("config/webhook contains %d configurations, want 3", len(out))
	}

	return out
}

// installWebhooks configures the API server to call webhooks at an address until the test ends.
func installWebhooks(t *testing.T, address string) {
	t.Helper()

	objects := configurations(t, address)
	t.Cleanup(func() {
		remove(t, objects...)
		awaitNoWebhooks(t)
	})

	applier, err := manifest.NewApplier(control.Config(), fieldManager)
	if err != nil {
		t.Fatal(err)
	}

	if err := applier.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
}

// startWebhooks starts craned and waits until the API server calls its webhooks.
func startWebhooks(t *testing.T, flags ...string) *craned {
	t.Helper()

	p := startCraned(t, flags...)
	installWebhooks(t, p.webhooks)
	awaitWebhooks(t)

	return p
}

// awaitWebhooks waits until the API server calls the webhooks of all three configurations with the right CA.
func awaitWebhooks(t *testing.T) {
	t.Helper()

	eventually(t, "webhooks respond", func(ctx context.Context) error {
		_, _, err := createDryRun(ctx, badSelector)
		if err == nil || !strings.Contains(err.Error(), "spec.selector.matchLabels") {
			return fmt.Errorf("creation with a bad selector: %w", err)
		}

		got, _, err := createDryRun(ctx, probeEHPA)
		if err != nil {
			return err
		}

		if v, _, _ := unstructured.NestedString(got.Object, "spec", "scaleTargetRef", "apiVersion"); v != "apps/v1" {
			return errors.New("defaults are missing")
		}

		return nil
	})
}

// awaitNoWebhooks waits until the API server calls no webhook. It does so shortly after their configurations were deleted.
func awaitNoWebhooks(t *testing.T) {
	t.Helper()

	harness.Eventually(context.WithoutCancel(t.Context()), t, waitTimeout, "no webhook is called", func(ctx context.Context) error {
		if _, _, err := createDryRun(ctx, badSelector); err != nil {
			return err
		}

		got, _, err := createDryRun(ctx, probeEHPA)
		if err != nil {
			return err
		}

		if _, exists, _ := unstructured.NestedString(got.Object, "spec", "scaleTargetRef", "apiVersion"); exists {
			return errors.New("defaults are set")
		}

		return nil
	})
}

const badSelector = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {generateName: probe-}
spec: {selector: {matchLabels: {"-": x}}}
`

const probeEHPA = `
apiVersion: autoscaling.crane.io/v1alpha1
kind: EffectiveHorizontalPodAutoscaler
metadata: {generateName: probe-}
spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: x}}
`

func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	harness.Eventually(t.Context(), t, waitTimeout, what, check)
}

// warnings collects the warnings of the API server.
type warnings struct {
	mu   sync.Mutex
	list []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.list = append(w.list, text)
}

// mapper maps kinds to resources. The kinds do not change while the tests run.
var mapper = sync.OnceValues(func() (meta.RESTMapper, error) {
	disco, err := discovery.NewDiscoveryClientForConfig(control.Config())
	if err != nil {
		return nil, err
	}

	return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco)), nil
})

// resourceOf returns a client for the kind of an object, and the warnings that it receives.
func resourceOf(o *unstructured.Unstructured) (dynamic.ResourceInterface, *warnings, error) {
	c := control.Config()
	w := &warnings{}
	c.WarningHandler = w

	kinds, err := mapper()
	if err != nil {
		return nil, nil, err
	}

	mapping, err := kinds.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		return nil, nil, err
	}

	client, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, nil, err
	}

	if mapping.Scope.Name() == "namespace" {
		ns := o.GetNamespace()
		if ns == "" {
			ns = "default"
		}

		return client.Resource(mapping.Resource).Namespace(ns), w, nil
	}

	return client.Resource(mapping.Resource), w, nil
}

func parse(text string) (*unstructured.Unstructured, error) {
	objects, err := manifest.ParseString(text)
	if err != nil {
		return nil, err
	}

	if len(objects) != 1 {
		return nil, fmt.Errorf("%d objects, want 1", len(objects))
	}

	return objects[0], nil
}

// createDryRun creates an object in a dry run and returns the object that would be stored, and the warnings.
func createDryRun(ctx context.Context, text string) (*unstructured.Unstructured, []string, error) {
	o, err := parse(text)
	if err != nil {
		return nil, nil, err
	}

	client, w, err := resourceOf(o)
	if err != nil {
		return nil, nil, err
	}

	got, err := client.Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return got, w.list, err
}

// createUntilEnd creates an object and deletes it at the end of the test.
func createUntilEnd(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()

	o, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}

	client, _, err := resourceOf(o)
	if err != nil {
		t.Fatal(err)
	}

	got, err := client.Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { remove(t, got) })
	return got
}

func remove(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()

	ctx := context.WithoutCancel(t.Context())
	for _, o := range objects {
		client, _, err := resourceOf(o)
		if err == nil {
			err = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		}
		if err != nil && !strings.Contains(err.Error(), "not found") {
			t.Error(err)
		}
	}
}

// update changes a stored object and returns it, and the warnings.
func update(ctx context.Context, o *unstructured.Unstructured, change func(*unstructured.Unstructured)) (*unstructured.Unstructured, []string, error) {
	client, w, err := resourceOf(o)
	if err != nil {
		return nil, nil, err
	}

	now, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}

	change(now)
	got, err := client.Update(ctx, now, metav1.UpdateOptions{})
	return got, w.list, err
}

func newClientset(t *testing.T) *kubernetes.Clientset {
	t.Helper()

	c, err := kubernetes.NewForConfig(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// newPod creates a pod in a dry run.
func newPod(ctx context.Context, c kubernetes.Interface, change func(*corev1.Pod)) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: "default", Labels: map[string]string{"workload": "batch"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "i"}}},
	}

	if change != nil {
		change(pod)
	}

	return c.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func containsPart(list []string, part string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
}

func quantity(text string) resource.Quantity { return resource.MustParse(text) }
