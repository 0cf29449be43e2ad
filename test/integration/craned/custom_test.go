// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/manifest"
)

const gameServerCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gamesets.example.org}
spec:
  group: example.org
  names: {kind: GameSet, plural: gamesets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestCustomKind checks a rule that selects a custom kind: without read access its condition states so; with read access the
// workloads have Recommendations that patch their pod template.
func TestCustomKind(t *testing.T) {
	c := newClient(t)
	applier, err := manifest.NewApplier(control.Config(), "craned-test")
	if err != nil {
		t.Fatal(err)
	}

	crd, err := manifest.ParseString(gameServerCRD)
	if err != nil {
		t.Fatal(err)
	}

	if err := applier.Apply(t.Context(), crd...); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), crd[0]); err != nil {
			t.Error(err)
		}
	})

	games := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "server", "image": "i"}},
	}}}}}
	games.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "GameSet"})
	games.SetNamespace("shop")
	games.SetName("arena")
	selects := rule("games", "24h", "shop")
	selects.Spec.ResourceSelectors = []analysisv1alpha1.ResourceSelector{{Kind: "GameSet"}}
	create(t, c, games, selects)

	prom := servePrometheus(t)
	startCraned(t, prom.URL())

	refused := awaitRule(t, c, "games", "SelectorFailed")
	if m := meta.FindStatusCondition(refused.Status.Conditions, "Ready").Message; !strings.Contains(m, "forbidden") || !strings.Contains(m, "resourceSelectors[0]") {
		t.Errorf("message %q, want the refusal and the selector", m)
	}

	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "craned-games"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"example.org"}, Resources: []string{"gamesets"}, Verbs: []string{"get", "list", "patch"}}},
	}
	create(t, c, role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "craned-games"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "craned-games"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "crane-system", Name: "craned"}},
	})

	eventually(t, "craned has read access", func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:crane-system:craned",
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: "shop", Group: "example.org", Version: "v1", Resource: "gamesets", Verb: "list",
			},
		}}

		if err := c.Create(ctx, review); err != nil {
			return err
		}

		if !review.Status.Allowed {
			return errors.New(review.Status.Reason)
		}

		return nil
	})

	// A change of the spec starts a run.
	if err := c.Get(t.Context(), client.ObjectKey{Name: "games"}, selects); err != nil {
		t.Fatal(err)
	}

	selects.Spec.RunInterval = "12h"
	if err := c.Update(t.Context(), selects); err != nil {
		t.Fatal(err)
	}

	awaitRule(t, c, "games", "RoundCompleted")
	recs, err := recommendations(t.Context(), c, "games")
	if err != nil {
		t.Fatal(err)
	}

	near(t, "cpu of the custom workload", requested(t, recs["shop/arena"].Status.RecommendedInfo)["cpu"], 0.4*1.15)
	eventually(t, "annotation on the custom workload", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(games), games); err != nil {
			return err
		}

		if games.GetAnnotations()[analysisv1alpha1.AnnotationResourceRecommendation] == "" {
			return errors.New("no annotation")
		}

		return nil
	})

	managers := games.GetManagedFields()
	if !slices.ContainsFunc(managers, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == "craned-recommendation" && m.Operation == metav1.ManagedFieldsOperationApply
	}) {
		t.Errorf("field managers %v, want craned-recommendation as owner of the annotation", managers)
	}
}
