// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/kube/manifest"
)

const rolloutDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rollouts.argoproj.io}
spec:
  group: argoproj.io
  scope: Namespaced
  names: {plural: rollouts, singular: rollout, kind: Rollout, listKind: RolloutList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}}
`

// defineRollout creates a custom resource like Argo's Rollout with a schema that preserves unknown fields.
func defineRollout(t *testing.T) dynamic.ResourceInterface {
	t.Helper()

	definition, err := manifest.ParseString(rolloutDefinition)
	if err != nil {
		t.Fatal(err)
	}

	applier, err := manifest.NewApplier(control.Config(), "cli-test")
	if err != nil {
		t.Fatal(err)
	}

	if err := applier.Apply(t.Context(), definition...); err != nil {
		t.Fatal(err)
	}

	return dynamic.NewForConfigOrDie(control.Config()).
		Resource(schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}).Namespace("rollouts")
}

// rollout creates an object of that kind and a pod that it controls.
func rollout(t *testing.T, rollouts dynamic.ResourceInterface, name string, spec map[string]any) {
	t.Helper()

	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": name, "namespace": "rollouts"}, "spec": spec,
	}}

	made, err := rollouts.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	yes := true
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-1", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: name, UID: made.GetUID(), Controller: &yes},
		}},
		Spec: corev1.PodSpec{AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "app", Image: "i"}}},
	}

	for deadline := time.Now().Add(30 * time.Second); ; {
		_, err := client.CoreV1().Pods("rollouts").Create(t.Context(), pod, metav1.CreateOptions{})
		if err == nil {
			return
		}

		// The service account of a new namespace is created with a delay.
		if !apierrors.IsForbidden(err) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestCustomKindPatches: kinds with a pod template in spec.template are patched there; others are skipped with the
// reason.
func TestCustomKindPatches(t *testing.T) {
	namespace(t, "rollouts")
	rollouts := defineRollout(t)
	containers := []any{
		map[string]any{"name": "log", "image": "i", "resources": map[string]any{"requests": map[string]any{"cpu": "10m"}}},
		map[string]any{"name": "app", "image": "i", "resources": map[string]any{"requests": map[string]any{"cpu": "2", "memory": "2Gi"}}},
	}
	rollout(t, rollouts, "own", map[string]any{"replicas": int64(1), "template": map[string]any{"spec": map[string]any{"containers": containers}}})
	rollout(t, rollouts, "borrowed", map[string]any{"replicas": int64(1), "workloadRef": map[string]any{"kind": "Deployment", "name": "web"}})

	e := &exporter{namespace: "rollouts"}
	for _, name := range []string{"own", "borrowed"} {
		e.pod("Rollout", name, name+"-1", "n1")
	}

	args := []string{"recommend", "--prometheus", e.serve(t).URL(), "--no-cache", "--history", "1d", "-n", "rollouts", "--kubeconfig", control.Kubeconfig(), "-o"}

	out, errOut, code := crane(t, append(args, "kustomize")...)
	var component struct{ Patches []struct{ Patch string } }
	if err := yaml.Unmarshal([]byte(out), &component); err != nil || code != 0 || len(component.Patches) != 1 || !strings.Contains(component.Patches[0].Patch, "op: test") {
		t.Errorf("kustomize: exit %d, %v, want one patch with a test: %s\n%s", code, err, errOut, out)
	}

	out, errOut, code = crane(t, append(args, "json-patch")...)
	var list []struct {
		Target struct{ Name string }
		Patch  json.RawMessage
	}

	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list) != 1 || list[0].Target.Name != "own" {
		t.Fatalf("JSON patch: exit %d, %v, want one of own: %s\n%s", code, err, errOut, out)
	}

	if !strings.Contains(errOut, "rollouts/Rollout/borrowed is skipped: ") || !strings.Contains(errOut, "Deployment/web (spec.workloadRef)") {
		t.Errorf("stderr %q, want borrowed skipped for Deployment web", errOut)
	}

	after, err := rollouts.Patch(t.Context(), "own", types.JSONPatchType, list[0].Patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("patching own: %v\n%s", err, list[0].Patch)
	}

	got, _, err := unstructured.NestedSlice(after.Object, "spec", "template", "spec", "containers")
	if err != nil || len(got) != 2 {
		t.Fatalf("containers after the patch: %v, %v, want 2", got, err)
	}

	app := unstructured.Unstructured{Object: got[1].(map[string]any)}
	cpu, _, _ := unstructured.NestedString(app.Object, "resources", "requests", "cpu")
	image, _, _ := unstructured.NestedString(app.Object, "image")
	if cpu == "2" || cpu == "" || image != "i" {
		t.Errorf("after the patch: %v, want another CPU request and the same image", got)
	}

	out, errOut, _ = crane(t, append(args, "strategic-merge")...)
	if strings.Contains(out, "Rollout") {
		t.Errorf("strategic merge has a custom kind, want none:\n%s\n%s", out, errOut)
	}
}
