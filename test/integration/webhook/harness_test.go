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
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/redirect"
	"crane.io/crane/test/integration/harness"
)

const (
	fieldManager = "webhook-test"
	// bound is how long a test waits for what takes a second or two on an idle machine.
	bound     = 90 * time.Second
	namespace = "crane-system"
	secret    = "craned-certificates"
)

// process is a craned that runs.
type process struct {
	*harness.Process
	webhooks, probes, metrics string
}

// startCraned runs craned with the rights that config/rbac gives it.
func startCraned(t *testing.T, flags ...string) *process {
	t.Helper()
	kubeconfig, err := control.KubeconfigFor(t.Context(), "craned", controlplane.ServiceAccount(namespace, "craned"))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{webhooks: harness.FreeAddress(t), probes: harness.FreeAddress(t), metrics: harness.FreeAddress(t)}
	host, port, _ := strings.Cut(p.webhooks, ":")
	p.Process = harness.Start(t, bound, binary, append([]string{
		"--kubeconfig=" + kubeconfig, "--prometheus-address=http://127.0.0.1:1", "--controllers=cost,recommendation",
		"--health-probe-bind-address=" + p.probes, "--metrics-bind-address=" + p.metrics, "--metrics-secure=false", "--server-bind-port=0",
		"--webhook-host=" + host, "--webhook-port=" + port,
	}, flags...)...)
	return p
}

// configurations are those of config/webhook, called at an address.
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
		t.Fatalf("config/webhook holds %d configurations, want 3", len(out))
	}
	return out
}

// configure lets the API server call webhooks at an address for the length of the test.
func configure(t *testing.T, address string) {
	t.Helper()
	objects := configurations(t, address)
	t.Cleanup(func() {
		remove(t, objects...)
		unasked(t)
	})
	applier, err := manifest.NewApplier(control.Config(), fieldManager)
	if err != nil {
		t.Fatal(err)
	}
	if err := applier.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
}

// serve starts a craned and waits until the API server gets its answers.
func serve(t *testing.T, flags ...string) *process {
	t.Helper()
	p := startCraned(t, flags...)
	configure(t, p.webhooks)
	answers(t)
	return p
}

// answers waits until the API server calls all three configurations with the right authority.
func answers(t *testing.T) {
	t.Helper()
	eventually(t, "webhooks answer", func(ctx context.Context) error {
		_, _, err := create(ctx, badSelector)
		if err == nil || !strings.Contains(err.Error(), "spec.selector.matchLabels") {
			return fmt.Errorf("a bad selector gives: %w", err)
		}
		got, _, err := create(ctx, probeEHPA)
		if err != nil {
			return err
		}
		if v, _, _ := unstructured.NestedString(got.Object, "spec", "scaleTargetRef", "apiVersion"); v != "apps/v1" {
			return errors.New("defaults are missing")
		}
		return nil
	})
}

// unasked waits until the API server has heard that there are no webhooks any more, which is a moment after they have been deleted.
func unasked(t *testing.T) {
	t.Helper()
	harness.Eventually(context.WithoutCancel(t.Context()), t, bound, "no webhook is called", func(ctx context.Context) error {
		if _, _, err := create(ctx, badSelector); err != nil {
			return err
		}
		got, _, err := create(ctx, probeEHPA)
		if err != nil {
			return err
		}
		if _, there, _ := unstructured.NestedString(got.Object, "spec", "scaleTargetRef", "apiVersion"); there {
			return errors.New("there are defaults")
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
	harness.Eventually(t.Context(), t, bound, what, check)
}

// warnings collects what the API server warns of.
type warnings struct {
	mu   sync.Mutex
	list []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

// mapper knows the kinds that there are; they do not change while the tests run.
var mapper = sync.OnceValues(func() (meta.RESTMapper, error) {
	disco, err := discovery.NewDiscoveryClientForConfig(control.Config())
	if err != nil {
		return nil, err
	}
	return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco)), nil
})

// resourceOf returns a client of the kind of an object, and what it is warned of.
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

// create asks for an object in a dry run and returns it as it would be stored, and what was warned of.
func create(ctx context.Context, text string) (*unstructured.Unstructured, []string, error) {
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

// keep creates an object for the length of the test.
func keep(t *testing.T, text string) *unstructured.Unstructured {
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

// update changes a stored object and returns it, and what was warned of.
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

func clients(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(control.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newPod asks for a pod in a dry run.
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

func contain(list []string, part string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
}

func quantity(text string) resource.Quantity { return resource.MustParse(text) }
