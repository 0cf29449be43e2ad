// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
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

// testOtherKinds checks that the pods of owners that craned does not watch are resized in place, also those that come later, that the status says
// what is not done, and that they get their size back when adoption is switched off, by the deletion of the Recommendation as well.
func testOtherKinds(t *testing.T) {
	f := newFixture(t)
	for kind, apiVersion := range map[string]string{"ReplicaSet": "apps/v1", "Job": "batch/v1"} {
		name := strings.ToLower(kind)
		f.CreateAll(newOtherTarget(f.Name, kind, name))
		f.AwaitReady(name, 2)
		rec := f.recommendTarget(corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: f.Name, Name: name}, name, auto, "700m", "512Mi")
		pods := f.AwaitPods(name, "have the recommended requests", checkRequests("700m", "512Mi"))
		f.awaitMessage(name, "new pods of a "+kind+" get the size of their template")

		if err := f.Delete(t.Context(), &pods[0]); err != nil {
			t.Fatal(err)
		}

		f.AwaitPods(name, "have the recommended requests after one was replaced", checkRequests("700m", "512Mi"))
		if err := f.Delete(t.Context(), rec); err != nil {
			t.Fatal(err)
		}

		f.AwaitPods(name, "have the original requests", checkRequests("1", "512Mi"))
	}
}

// newOtherTarget returns an object of a kind that is not watched, with two pods.
func newOtherTarget(namespace, kind, name string) client.Object {
	two := int32(2)
	template := harness.PodTemplate(name)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if kind == "ReplicaSet" {
		return &appsv1.ReplicaSet{
			ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
		}
	}

	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: &two, BackoffLimit: new(int32(10)), Template: template}}
}
