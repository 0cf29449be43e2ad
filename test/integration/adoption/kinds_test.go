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
	"crane.io/crane/test/integration/harness"
)

// testStatefulSet checks that the pods of a StatefulSet are resized in place and keep their identity.
func testStatefulSet(t *testing.T) {
	f := newFixture(t)
	replicas := int32(2)
	template := harness.PodTemplate("db")
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, ServiceName: "db",
			PodManagementPolicy: appsv1.ParallelPodManagement, Template: template,
		},
	}

	if err := admin.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}

	before := map[string]string{}
	for _, p := range f.AwaitReady("db", 2) {
		before[p.Name] = string(p.UID)
	}

	rec := f.recommendTarget(corev1.ObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: f.Name, Name: "db"}, "db", auto, "700m", "1Gi")
	for _, p := range f.AwaitPods("db", "have the recommended requests", checkRequests("700m", "1Gi")) {
		if before[p.Name] != string(p.UID) || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s was replaced or restarted, want neither", p.Name)
		}
	}

	f.awaitPhase("db", adoption.Resting)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		t.Fatal(err)
	}

	if set.Generation != 1 || set.Annotations[analysisv1alpha1.AnnotationAdoption] == "" {
		t.Errorf("generation %d, annotations %v, want generation 1 and the adoption state", set.Generation, set.Annotations)
	}
	if err := admin.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}

	f.AwaitPods("db", "have the original requests", checkRequests("1", "512Mi"))
}
