// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/config"
	"crane.io/crane/internal/adoption/poddryrun"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/test/integration/harness"
)

// TestCranedPodDryRuns tries to create pods with craned's token: it has no right by default, and with the optional right, dry runs alone pass.
func TestCranedPodDryRuns(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "dry-"}}
	create(t, ns)
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}})
	craned := newCraned(t)
	newPod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}, Spec: newPodTemplate().Spec}
	}

	if err := craned.Create(t.Context(), newPod("default"), client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Fatalf("creating a pod in a dry run without the optional right: %v, want that it is forbidden", err)
	}
	if reason, err := poddryrun.Permitted(t.Context(), craned, craned, "crane-system"); err != nil || reason != "craned has no right to create pods" {
		t.Errorf("Permitted without the right = %q, %v, want that there is none", reason, err)
	}

	objects, err := manifest.ReadDir(config.Components, "components/pod-dry-runs")
	if err != nil || len(objects) != 2 {
		t.Fatalf("components/pod-dry-runs has %d objects, %v, want 2", len(objects), err)
	}
	for _, o := range objects {
		harness.Create(t, admin, o)
	}

	harness.Eventually(t.Context(), t, waitTimeout, "a dry run passes", func(ctx context.Context) error {
		return craned.Create(ctx, newPod("dry"), client.DryRunAll)
	})

	for _, change := range []func(*corev1.Pod){
		func(*corev1.Pod) {},
		func(p *corev1.Pod) { p.Annotations = map[string]string{"dryRun": "true"} },
		func(p *corev1.Pod) { p.Namespace = "kube-system" },
	} {
		pod := newPod("real")
		change(pod)
		if err := checkRefused(craned.Create(t.Context(), pod), "crane-craned-pod-dry-runs"); err != nil {
			t.Errorf("creating a pod in %s: %v", pod.Namespace, err)
		}
	}

	for _, opts := range [][]client.CreateOption{{client.FieldOwner("x")}, {&client.CreateOptions{FieldManager: "x"}}} {
		if err := checkRefused(craned.Create(t.Context(), newPod("real"), opts...), "crane-craned-pod-dry-runs"); err != nil {
			t.Error(err)
		}
	}

	// Another way to a pod.
	applied := []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"applied"},"spec":{"containers":[{"name":"a","image":"a"}]}}`)
	err = craned.Patch(t.Context(), newPod("applied"), client.RawPatch(types.ApplyPatchType, applied), client.FieldOwner("x"))
	if !apierrors.IsForbidden(err) {
		t.Errorf("applying a pod: %v, want that it is forbidden", err)
	}

	var pods corev1.PodList
	if err := admin.List(t.Context(), &pods, client.InNamespace(ns.Name)); err != nil || len(pods.Items) > 0 {
		t.Errorf("the namespace has %d pods, %v, want none", len(pods.Items), err)
	}

	// A policy that is not as shipped: craned does without.
	if reason, err := poddryrun.Permitted(t.Context(), craned, craned, "crane-system"); err != nil || reason != "" {
		t.Errorf("Permitted = %q, %v, want that it is", reason, err)
	}

	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "crane-craned-pod-dry-runs"}, binding); err != nil {
		t.Fatal(err)
	}

	harness.Delete(t, admin, binding)
	t.Cleanup(func() {
		binding.SetResourceVersion("")
		if err := admin.Create(context.WithoutCancel(t.Context()), binding); err != nil {
			t.Error(err)
		}
	})

	harness.Eventually(t.Context(), t, waitTimeout, "craned does without the right", func(ctx context.Context) error {
		reason, err := poddryrun.Permitted(ctx, craned, craned, "crane-system")
		if err == nil && reason == "" {
			err = errors.New("it is permitted")
		}
		if err != nil {
			return fmt.Errorf("Permitted: %w", err)
		}

		return nil
	})
}
