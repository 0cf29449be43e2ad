// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// annotationOf returns the annotation that a target has for the recommendedValue of a Recommendation of the type Resource: the document
// below resourceRequest.
func annotationOf(rec analysisv1alpha1.Recommendation) string {
	lines := strings.Split(strings.TrimPrefix(rec.Status.RecommendedValue, "resourceRequest:\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}

	return strings.Join(lines, "\n")
}

// TestAnnotationsOfGocrane verifies that craned replaces an annotation that gocrane's craned left, and no annotation of another manager.
func TestAnnotationsOfGocrane(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	const stale = "containers:\n- containerName: app\n  target:\n    cpu: 9\n"
	key := analysisv1alpha1.AnnotationResourceRecommendation
	migrated := deployment("shop", "web")
	foreign := deployment("shop", "doomed")
	shared := deployment("bank", "web")
	create(t, c, migrated, foreign, shared)

	// annotate writes the stale value as an update of manager "craned".
	annotate := func(d *appsv1.Deployment, update func() error) {
		t.Helper()

		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // The deployment controller writes the status as well.
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}

			d.Annotations = map[string]string{key: stale}
			return update()
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	// gocrane updated the status subresource. Its manager is the name of its binary.
	annotate(migrated, func() error { return c.Status().Update(t.Context(), migrated, client.FieldOwner("craned")) })
	annotate(foreign, func() error { return c.Update(t.Context(), foreign, client.FieldOwner("craned")) })

	// The same value written by two managers belongs to both.
	annotate(shared, func() error { return c.Status().Update(t.Context(), shared, client.FieldOwner("craned")) })
	apply := &appsv1.Deployment{}
	apply.Name = shared.Name
	apply.Namespace = shared.Namespace

	apply.Annotations = map[string]string{key: stale}
	raw := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"bank","annotations":{%q:%q}}}`, key, stale)
	if err := c.Patch(t.Context(), apply, client.RawPatch("application/apply-patch+yaml", []byte(raw)), client.FieldOwner("gitops")); err != nil {
		t.Fatal(err)
	}

	create(t, c, rule("legacy", "24h", "shop", "bank"))
	startCraned(t, prom.URL())
	awaitRule(t, c, "legacy", "RoundCompleted")

	eventually(t, "the annotation of gocrane is replaced, the others stay", func(ctx context.Context) error {
		recs, err := recommendations(ctx, c, "legacy")
		if err != nil {
			return err
		}

		const conflict = "False/FailedUpdateRecommendationValue"
		for _, want := range []struct {
			target                *appsv1.Deployment
			annotation, condition string
		}{
			{migrated, annotationOf(recs["shop/web"]), "absent"}, {foreign, stale, conflict}, {shared, stale, conflict},
		} {
			name := want.target.Namespace + "/" + want.target.Name
			if err := c.Get(ctx, client.ObjectKeyFromObject(want.target), want.target); err != nil {
				return err
			}

			if got := want.target.Annotations[key]; got != want.annotation || got == "" {
				return fmt.Errorf("%s has the annotation %q", name, got)
			}

			if got := harness.ConditionText(recs[name].Status.Conditions, "Adopted"); got != want.condition {
				return fmt.Errorf("%s: condition Adopted is %s, want %s", name, got, want.condition)
			}
		}

		return nil
	})
}
