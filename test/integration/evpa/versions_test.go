// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa_test

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

// testVersionNotServed checks that the Recommendation for a target stays, and follows its usage, when the API version of the reference is no
// longer served.
func testVersionNotServed(f *fixture) {
	crd := f.installGames()
	f.writeHistoryOf("Game", "arena", 0.2, 100*mib)
	arena := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "app", "resources": map[string]any{"requests": map[string]any{"cpu": "1", "memory": "512Mi"}}}},
	}}}}}
	arena.SetAPIVersion("example.org/v2")
	arena.SetKind("Game")
	arena.SetNamespace(f.Name)
	arena.SetName("arena")
	f.Eventually("a Game is created", func(ctx context.Context) error { return admin.Create(ctx, arena.DeepCopy()) })

	e := autoscaler("arena", "", "arena", updateMode(autoscalingv1alpha1.UpdateModeInitial))
	e.Spec.TargetRef.APIVersion, e.Spec.TargetRef.Kind = "example.org/v1", "Game"
	f.CreateAll(e)
	e = f.await("arena", "is ready", condition("Ready", metav1.ConditionTrue, "RecommendationReady", ""))
	var uid types.UID
	f.recommendation("arena", "exists", func(rec *analysisv1alpha1.Recommendation) error {
		uid = rec.UID
		return nil
	})
	before := e.Status.Recommendation.ContainerRecommendations[0].Target.Cpu().MilliValue()

	crd.Spec.Versions[0].Served = false
	if err := admin.Update(f.T.Context(), crd); err != nil {
		f.T.Fatal(err)
	}

	f.Eventually("v1 is not served", func(ctx context.Context) error {
		err := admin.Get(ctx, client.ObjectKey{Name: crd.Name}, crd)
		old := &unstructured.Unstructured{}
		old.SetAPIVersion("example.org/v1")
		old.SetKind("Game")

		if found := admin.Get(ctx, f.Key("arena"), old); found == nil {
			err = errors.Join(err, errors.New("v1 is served"))
		}

		return err
	})

	f.writeHistoryOf("Game", "arena", 0.6, 100*mib)
	f.await("arena", "follows the usage", func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
		if r := e.Status.Recommendation; r == nil || r.ContainerRecommendations[0].Target.Cpu().MilliValue() < 2*before {
			return fmt.Errorf("it recommends %+v; conditions %+v", r, e.Status.Conditions)
		}

		return nil
	})

	f.recommendation("arena", "is the same", func(rec *analysisv1alpha1.Recommendation) error {
		if rec.UID != uid {
			return fmt.Errorf("UID %s, was %s", rec.UID, uid)
		}

		return nil
	})
}

// installGames installs a custom workload that is served in two versions, and lets craned read it.
func (f *fixture) installGames() *apiextensionsv1.CustomResourceDefinition {
	f.T.Helper()

	keep := true
	version := func(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: storage,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}},
		}
	}

	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "games.example.org"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.org", Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "games", Singular: "game", Kind: "Game"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", false), version("v2", true)},
		},
	}

	for _, o := range []client.Object{crd, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "craned-games"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"example.org"}, Resources: []string{"games"}, Verbs: []string{"get", "list", "patch"}}},
	}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "craned-games"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "craned-games"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "crane-system", Name: "craned"}},
	}} {
		if err := admin.Create(f.T.Context(), o); err != nil {
			f.T.Fatal(err)
		}
	}

	f.Eventually("the definition is current", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}

		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}

		return errors.New("it is not established")
	})

	return crd
}
