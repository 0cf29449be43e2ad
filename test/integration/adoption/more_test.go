// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

// testReplicas checks that replicas are raised at once and lowered in steps, with craned's field manager, and restored when the
// Recommendation is deleted.
func testReplicas(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 2)
	rec := f.recommendReplicas("web", "web", 5)
	f.AwaitReady("web", 5)
	setReplicas(t, rec, 3)
	f.AwaitReady("web", 4)
	f.AwaitReady("web", 3)

	d, err := f.deployment(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}

	if !managedBy(d, "craned-adoption-replicas") {
		t.Errorf("field managers %v, want craned-adoption-replicas", d.ManagedFields)
	}
	if err := admin.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}

	f.AwaitReady("web", 2)
}

// testReplicasOfStatefulSet checks that the replicas of a StatefulSet are raised.
func testReplicasOfStatefulSet(t *testing.T) {
	f := newFixture(t)
	labels := map[string]string{"app": "db"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "i"}}},
			},
		},
	}

	f.CreateAll(set)
	ref := corev1.ObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: f.Name, Name: "db"}
	setReplicas(t, f.createRecommendation(ref, "db", analysisv1alpha1.AnalysisTypeReplicas, auto), 3)
	harness.Await(f.Namespace, &appsv1.StatefulSet{}, "db", "has 3 replicas", func(s *appsv1.StatefulSet) error {
		if *s.Spec.Replicas != 3 {
			return fmt.Errorf("%d replicas", *s.Spec.Replicas)
		}

		return nil
	})
}

// testTemplate checks that the template of a Deployment with annotation adopt-template is changed with a rollout, and that the
// field manager of its owner gets the request back when the Recommendation is deleted.
func testTemplate(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 1, func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{analysisv1alpha1.AnnotationAdoptTemplate: "true"}
	})
	rec := f.recommend("web", auto, "2", "512Mi")

	awaitTemplate := func(want, manager string) {
		t.Helper()

		f.Eventually("the template requests "+want, func(ctx context.Context) error {
			d, err := f.deployment(ctx, "web")
			if err != nil {
				return err
			}

			if cpu := d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != want {
				return fmt.Errorf("it requests %s", cpu)
			}

			return checkRequestManager(d, manager)
		})
	}

	awaitTemplate("2", "craned-adoption-resource")
	f.AwaitPods("web", "have the new template", func(pods []corev1.Pod) error {
		return errors.Join(harness.CheckReady(pods, 1), checkRequests("2", "512Mi")(pods))
	})
	f.awaitPhase("web", adoption.Resting)

	if err := admin.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}

	awaitTemplate("1", "owner")
	f.awaitStateRemoved()
}

// checkRequestManager checks that a field manager alone owns the CPU request in the template.
func checkRequestManager(d *appsv1.Deployment, manager string) error {
	var found []string
	for _, f := range d.ManagedFields {
		if f.FieldsV1 != nil && containsAll(f.FieldsV1.GetRawString(), `"f:requests"`, `"f:cpu"`) {
			found = append(found, f.Manager)
		}
	}

	if len(found) != 1 || found[0] != manager {
		return fmt.Errorf("owned by %v, want %s", found, manager)
	}

	return nil
}

// testQOSClasses checks that pods are not changed if a resize would change their QoS class.
func testQOSClasses(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	})
	f.recommend("web", auto, "200m", "512Mi")
	f.awaitMessage("web", "BestEffort")

	f.Deploy("guaranteed", 1, func(d *appsv1.Deployment) {
		c := &d.Spec.Template.Spec.Containers[0]
		c.Resources.Requests = harness.ResourceList("1500m", "512Mi") // Whole cores would stay for another reason.
		c.Resources.Limits = c.Resources.Requests
	})
	f.recommend("guaranteed", auto, "500m", "512Mi")
	f.awaitMessage("guaranteed", "QoS")

	for _, name := range []string{"web", "guaranteed"} {
		if pods := f.Pods(name); len(pods) != 1 || pods[0].Generation != 1 {
			t.Errorf("%s: pods %v, want one unchanged", name, pods)
		}
	}
}

// testRecommendationDeleted checks that requests are restored when the Recommendation is deleted.
func testRecommendationDeleted(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 2)
	rec := f.recommend("web", auto, "2", "512Mi")
	f.AwaitPods("web", "have the raised requests", checkRequests("2", "512Mi"))

	if err := admin.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}

	f.AwaitPods("web", "have the original requests", checkRequests("1", "512Mi"))
	f.awaitStateRemoved()
}
