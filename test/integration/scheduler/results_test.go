// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

const resultPolicy = "crane-topology-result"

// TestTenantsDoNotWriteTopologyResults verifies that a user with all rights in a namespace cannot write, change or remove the annotation with
// the zones of a pod, while schedulers and administrators can.
func TestTenantsDoNotWriteTopologyResults(t *testing.T) {
	const namespace, forged = "topology-tenant", `[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":"64"}}}]`
	ctx := t.Context()
	tenant := tenantOf(t, namespace).CoreV1()
	admin := client.CoreV1()

	schedulerConfig, err := control.ConfigFor(ctx, controlplane.ServiceAccount("crane-system", "crane-scheduler"))
	if err != nil {
		t.Fatal(err)
	}

	scheduler, err := kubernetes.NewForConfig(schedulerConfig)
	if err != nil {
		t.Fatal(err)
	}

	newPod := func(name string, annotations map[string]string) *corev1.Pod {
		// No scheduler has this name.
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
			Spec:       corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
	}

	create := func(name string) *corev1.Pod {
		t.Helper()

		pod, err := tenant.Pods(namespace).Create(ctx, newPod(name, map[string]string{topology.AnnotationPodTopologyResult: forged, "team": "a"}), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}

		return pod
	}

	annotate := func(value any) []byte {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{topology.AnnotationPodTopologyResult: value}}})
		if err != nil {
			t.Fatal(err)
		}

		return patch
	}

	binding := func(pod, value string) *corev1.Binding {
		return &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod, Annotations: map[string]string{topology.AnnotationPodTopologyResult: value}},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "any"},
		}
	}

	refused := func(err error) error {
		if err == nil || !strings.Contains(err.Error(), resultPolicy) {
			return errors.Join(errors.New("not refused by policy "+resultPolicy), err)
		}

		return nil
	}

	patch := func(name, value string) error {
		_, err := tenant.Pods(namespace).Patch(ctx, name, types.MergePatchType, annotate(value), metav1.PatchOptions{})
		return err
	}

	// A new policy takes effect some time after it was created.
	harness.Eventually(ctx, t, timeout, "pods are created without the annotation", func(ctx context.Context) error {
		pod, err := tenant.Pods(namespace).Create(ctx, newPod("dry", map[string]string{topology.AnnotationPodTopologyResult: forged}), metav1.CreateOptions{DryRun: []string{"All"}})
		if err == nil && pod.Annotations[topology.AnnotationPodTopologyResult] != "" {
			err = errors.New("the annotation is kept")
		}

		return err
	})

	pod := create("copied")
	if _, ok := pod.Annotations[topology.AnnotationPodTopologyResult]; ok || pod.Annotations["team"] != "a" {
		t.Errorf("the pod was created with the annotations %v, want team alone", pod.Annotations)
	}

	harness.Eventually(ctx, t, timeout, "updates are refused", func(context.Context) error { return refused(patch("copied", forged)) })
	_, err = tenant.Pods(namespace).Patch(ctx, "copied", types.MergePatchType, annotate(forged), metav1.PatchOptions{}, "status")
	if err := refused(err); err != nil {
		t.Errorf("pods/status: %v", err)
	}

	// These subresources write no metadata.
	for _, subresource := range []string{"ephemeralcontainers", "resize"} {
		got, err := tenant.Pods(namespace).Patch(ctx, "copied", types.StrategicMergePatchType, annotate(forged), metav1.PatchOptions{}, subresource)
		if err == nil && got.Annotations[topology.AnnotationPodTopologyResult] != "" {
			t.Errorf("%s wrote the annotation, want none", subresource)
		}
	}

	if err := refused(tenant.Pods(namespace).Bind(ctx, binding("copied", forged), metav1.CreateOptions{})); err != nil {
		t.Errorf("pods/binding: %v", err)
	}

	legacy := tenant.RESTClient().Post().Namespace(namespace).Resource("bindings").Body(binding("copied", forged)).Do(ctx).Error()
	if err := refused(legacy); err != nil {
		t.Errorf("bindings: %v", err)
	}

	// Everything else is left to the rights that Kubernetes gives.
	if _, err := tenant.Pods(namespace).Patch(ctx, "copied", types.MergePatchType, []byte(`{"metadata":{"annotations":{"team":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("another annotation: %v", err)
	}

	plain := binding("copied", "")
	plain.Annotations = nil
	if err := tenant.Pods(namespace).Bind(ctx, plain, metav1.CreateOptions{}); err != nil {
		t.Errorf("a Binding without the annotation: %v", err)
	}

	create("placed")
	if err := scheduler.CoreV1().Pods(namespace).Bind(ctx, binding("placed", forged), metav1.CreateOptions{}); err != nil {
		t.Errorf("the scheduler cannot bind with the annotation: %v", err)
	}
	if got, err := admin.Pods(namespace).Get(ctx, "placed", metav1.GetOptions{}); err != nil || got.Annotations[topology.AnnotationPodTopologyResult] != forged {
		t.Errorf("the pod has the annotations %v, %v, want the scheduler's", got.Annotations, err)
	}

	for what, value := range map[string]any{"change": "[]", "removal": nil} {
		_, err := tenant.Pods(namespace).Patch(ctx, "placed", types.MergePatchType, annotate(value), metav1.PatchOptions{})
		if err := refused(err); err != nil {
			t.Errorf("%s by the tenant: %v", what, err)
		}
	}

	if _, err := tenant.Pods(namespace).Patch(ctx, "placed", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("another change of a placed pod: %v", err)
	}
	if _, err := scheduler.CoreV1().Pods(namespace).Patch(ctx, "placed", types.MergePatchType, annotate(nil), metav1.PatchOptions{}); err != nil {
		t.Errorf("removal by the scheduler: %v", err)
	}
	if _, err := admin.Pods(namespace).Patch(ctx, "placed", types.MergePatchType, annotate(forged), metav1.PatchOptions{}); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}

// tenantOf returns a client of a user with all rights in a namespace, which is created, and none elsewhere.
func tenantOf(t *testing.T, namespace string) kubernetes.Interface {
	t.Helper()

	ctx := t.Context()
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	name := "owner"
	for _, create := range []func() error{
		func() error {
			_, err := client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
			}, metav1.CreateOptions{})

			return err
		},
		func() error {
			_, err := client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: namespace}},
			}, metav1.CreateOptions{})

			return err
		},
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}

	config, err := control.ConfigFor(ctx, controlplane.CertificateUser(namespace))
	if err != nil {
		t.Fatal(err)
	}

	tenant, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	harness.Eventually(ctx, t, timeout, "the tenant may list pods", func(ctx context.Context) error {
		_, err := tenant.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err
	})

	return tenant
}
