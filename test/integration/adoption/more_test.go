// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
)

// testReplicas: through the subresource scale, up at once and down in steps, in our name.
func testReplicas(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 2)
	rec := &analysisv1alpha1.Recommendation{}
	rec.Namespace, rec.Name = ns, "web"
	rec.Spec = analysisv1alpha1.RecommendationSpec{
		TargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: ns, Name: "web"},
		Type:      analysisv1alpha1.AnalysisTypeReplicas, AdoptionType: auto,
	}
	if err := admin.Create(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	set(t, rec, "replicasRecommendation:\n  replicas: 5\n")
	podsUntil(t, ns, "web", "five", func(pods []corev1.Pod) error { return ready(pods, 5) })
	set(t, rec, "replicasRecommendation:\n  replicas: 3\n")
	podsUntil(t, ns, "web", "four", func(pods []corev1.Pod) error { return ready(pods, 4) })
	podsUntil(t, ns, "web", "three", func(pods []corev1.Pod) error { return ready(pods, 3) })
	d := &appsv1.Deployment{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, d); err != nil {
		t.Fatal(err)
	}
	ours := false
	for _, f := range d.ManagedFields {
		ours = ours || f.Manager == "craned-adoption-replicas"
	}
	if !ours {
		t.Errorf("nothing is ours: %v", d.ManagedFields)
	}
	if err := admin.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	podsUntil(t, ns, "web", "two again", func(pods []corev1.Pod) error { return ready(pods, 2) })
}

// testTemplate: where the owner asks for it the template follows, by a roll-out, and goes back to its owner afterwards.
func testTemplate(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 1, func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{analysisv1alpha1.AnnotationAdoptTemplate: "true"}
	})
	rec := recommend(t, ns, "web", auto, "2", "512Mi")
	template := func(want, manager string) {
		t.Helper()
		eventually(t, "a template with "+want, func(ctx context.Context) error {
			d := &appsv1.Deployment{}
			if err := admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: "web"}, d); err != nil {
				return err
			}
			if cpu := d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != want {
				return fmt.Errorf("it asks for %s", cpu)
			}
			return owns(d, manager)
		})
	}
	template("2", "craned-adoption-resource")
	podsUntil(t, ns, "web", "rolled out", func(pods []corev1.Pod) error {
		if err := ready(pods, 1); err != nil {
			return err
		}
		return sized("2", "512Mi")(pods)
	})
	phase(t, ns, "web", adoption.Resting)
	if err := admin.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	template("1", "owner")
	forgotten(t, ns)
}

// owns wants a manager to be the one that owns the CPU request in the template.
func owns(d *appsv1.Deployment, manager string) error {
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

// testClasses: what cannot be resized in place is left alone, and told.
func testClasses(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	})
	recommend(t, ns, "web", auto, "200m", "512Mi")
	message(t, ns, "web", "BestEffort")
	deploy(t, ns, "guaranteed", 1, func(d *appsv1.Deployment) {
		c := &d.Spec.Template.Spec.Containers[0]
		c.Resources.Limits = c.Resources.Requests
	})
	recommend(t, ns, "guaranteed", auto, "500m", "512Mi")
	message(t, ns, "guaranteed", "QoS")
	for _, name := range []string{"web", "guaranteed"} {
		if pods, err := podsOf(t.Context(), ns, name); err != nil || len(pods) != 1 || pods[0].Generation != 1 {
			t.Errorf("%s: touched: %v, %v", name, pods, err)
		}
	}
}

// testRecommendationGoes: pods get back what they had when nobody recommends anything any more.
func testRecommendationGoes(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 2)
	rec := recommend(t, ns, "web", auto, "2", "512Mi")
	podsUntil(t, ns, "web", "raised", sized("2", "512Mi"))
	if err := admin.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	podsUntil(t, ns, "web", "as they were", sized("1", "512Mi"))
	forgotten(t, ns)
}
