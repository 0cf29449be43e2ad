// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
)

// testStatefulSet: its pods are resized in place as well, and stay who they are.
func testStatefulSet(t *testing.T) {
	ns := namespaceFor(t)
	replicas, none := int32(2), int64(0)
	labels := map[string]string{"app": "db"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: "db", PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"pool": "wide"}, TerminationGracePeriodSeconds: &none,
					Containers: []corev1.Container{{Name: "app", Image: "example.com/db:1", Resources: corev1.ResourceRequirements{Requests: requests("1", "512Mi")}}},
				},
			},
		},
	}
	if err := admin.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for _, p := range podsUntil(t, ns, "db", "ready", func(pods []corev1.Pod) error { return ready(pods, 2) }) {
		before[p.Name] = string(p.UID)
	}
	rec := recommendNamed(t, corev1.ObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: ns, Name: "db"}, "db", auto, "700m", "1Gi")
	for _, p := range podsUntil(t, ns, "db", "at their size", sized("700m", "1Gi")) {
		if before[p.Name] != string(p.UID) || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s is another one, or was restarted", p.Name)
		}
	}
	phase(t, ns, "db", adoption.Resting)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		t.Fatal(err)
	}
	if set.Generation != 1 || set.Annotations[analysisv1alpha1.AnnotationAdoption] == "" {
		t.Errorf("generation %d, annotations %v", set.Generation, set.Annotations)
	}
	if err := admin.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	podsUntil(t, ns, "db", "as they were", sized("1", "512Mi"))
}
