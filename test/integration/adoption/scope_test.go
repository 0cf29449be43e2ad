// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// TestClusterScopedTarget checks that the Recommendation of a tenant writes nothing on a cluster-scoped object, although its reference has the
// tenant's namespace: the API server ignores the namespace of a request for such a kind. Of custom kinds no admission policy knows it.
func TestClusterScopedTarget(t *testing.T) {
	f := newFixture(t)
	startCraned(t)
	rule := &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: "rule-beside-" + f.Name}}
	rule.Spec.ResourceSelectors = []analysisv1alpha1.ResourceSelector{{Kind: "Deployment", APIVersion: "apps/v1"}}
	rule.Spec.Recommenders = []analysisv1alpha1.Recommender{{Name: "Resource"}}
	harness.Create(t, admin, rule)

	rec := &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "outside"},
		Spec: analysisv1alpha1.RecommendationSpec{
			Type: analysisv1alpha1.AnalysisTypeHPA, AdoptionType: analysisv1alpha1.AdoptionTypeStatusAndAnnotation,
			TargetRef: corev1.ObjectReference{APIVersion: analysisv1alpha1.GroupVersion.String(), Kind: "RecommendationRule", Namespace: f.Name, Name: rule.Name},
		},
	}

	harness.Create(t, admin, rec)
	written := rec.DeepCopy()
	written.Status.RecommendedValue = "effectiveHPA:\n  minReplicas: 1\n  maxReplicas: 2\n"
	if err := admin.Status().Patch(t.Context(), written, client.MergeFrom(rec)); err != nil {
		t.Fatal(err)
	}

	harness.Eventually(t.Context(), t, waitTimeout, "the target is refused", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(rule), rule); err != nil {
			return err
		}

		if len(rule.Annotations) > 0 {
			t.Fatalf("the rule has annotations of a tenant: %v, want none", rule.Annotations)
		}

		if err := admin.Get(ctx, client.ObjectKeyFromObject(rec), rec); err != nil {
			return err
		}

		if got := harness.ConditionText(rec.Status.Conditions, "Adopted"); got != "False/TargetOutsideNamespace" {
			return fmt.Errorf("condition %s", got)
		}

		return nil
	})
}
