// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

func newRecommendation(namespace string, target corev1.ObjectReference) *analysisv1alpha1.Recommendation {
	return &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "r-"},
		Spec:       analysisv1alpha1.RecommendationSpec{TargetRef: target, Type: analysisv1alpha1.AnalysisTypeResource},
	}
}

// TestRecommendationTarget: a Recommendation for a target outside its namespace is refused without a webhook.
func TestRecommendationTarget(t *testing.T) {
	tenant, namespace := newTenant(t)
	web := func(namespace string) corev1.ObjectReference {
		return corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: "web"}
	}
	const policy = "crane-recommendation-target"
	awaitRefused(t, policy, func(ctx context.Context) error {
		return tenant.Create(ctx, newRecommendation(namespace, web("default")), client.DryRunAll)
	})

	for name, target := range map[string]corev1.ObjectReference{
		"node": {APIVersion: "v1", Kind: "Node", Name: "one"},
		// The API server ignores the namespace of a request for a Node.
		"node, as in its own namespace": {APIVersion: "v1", Kind: "Node", Namespace: namespace, Name: "one"},
		"node, without a version":       {Kind: "Node", Namespace: namespace, Name: "one"},
		"no namespace":                  web(""),
		"Crane's own":                   web("crane-system"),
	} {
		if err := checkRefused(tenant.Create(t.Context(), newRecommendation(namespace, target)), policy); err != nil {
			t.Errorf("target with %s: %v", name, err)
		}
	}

	rec := newRecommendation(namespace, web(namespace))
	if err := tenant.Create(t.Context(), rec); err != nil {
		t.Fatal(err)
	}

	changed := rec.DeepCopy()
	changed.Spec.TargetRef.Namespace = "default"
	if err := checkRefused(tenant.Patch(t.Context(), changed, client.MergeFrom(rec)), policy); err != nil {
		t.Errorf("change of the target: %v", err)
	}

	if err := checkRefused(admin.Create(t.Context(), newRecommendation("crane-system", web(namespace))), policy); err != nil {
		t.Errorf("from Crane's own namespace: %v", err)
	}
	if err := admin.Create(t.Context(), newRecommendation("crane-system", corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "one"})); err != nil {
		t.Errorf("a Node from Crane's own namespace: %v", err)
	}
}

// TestRecommendationOwner: only craned and administrators of the whole cluster make a Recommendation one of a rule or an autoscaler.
func TestRecommendationOwner(t *testing.T) {
	tenant, namespace := newTenant(t)
	craned := newCraned(t)
	target := corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: "web"}
	owned := func(apiVersion, kind string, controller bool) *analysisv1alpha1.Recommendation {
		rec := newRecommendation(namespace, target)
		rec.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "x", UID: "7a2e", Controller: &controller}}
		return rec
	}

	labeled := newRecommendation(namespace, target)
	labeled.Labels = map[string]string{analysisv1alpha1.LabelRuleUID: "7a2e"}
	const policy = "crane-recommendation-owner"
	evpa := owned("autoscaling.crane.io/v1alpha1", "EffectiveVerticalPodAutoscaler", true)
	awaitRefused(t, policy, func(ctx context.Context) error { return tenant.Create(ctx, evpa.DeepCopy(), client.DryRunAll) })

	for name, rec := range map[string]*analysisv1alpha1.Recommendation{
		"owned by a rule":      owned("analysis.crane.io/v1alpha1", "RecommendationRule", false),
		"controlled by others": owned("v1", "ConfigMap", true),
		"labeled":              labeled,
	} {
		if err := checkRefused(tenant.Create(t.Context(), rec.DeepCopy()), policy); err != nil {
			t.Errorf("creation %s by a tenant: %v", name, err)
		}
		if err := craned.Create(t.Context(), rec); err != nil {
			t.Errorf("%s, by craned: %v", name, err)
		}

		changed := rec.DeepCopy()
		changed.Labels = map[string]string{"mine": "yes", analysisv1alpha1.LabelRuleUID: rec.Labels[analysisv1alpha1.LabelRuleUID]}
		if changed.Labels[analysisv1alpha1.LabelRuleUID] == "" {
			delete(changed.Labels, analysisv1alpha1.LabelRuleUID)
		}

		changed.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeStatus
		if err := tenant.Patch(t.Context(), changed, client.MergeFrom(rec)); err != nil {
			t.Errorf("%s: a change of something else: %v", name, err)
		}

		forged := changed.DeepCopy()
		forged.Labels[analysisv1alpha1.LabelRuleUID] = "other"
		if err := checkRefused(tenant.Patch(t.Context(), forged, client.MergeFrom(changed)), policy); err != nil {
			t.Errorf("%s: another rule: %v", name, err)
		}

		free := changed.DeepCopy()
		free.OwnerReferences = nil
		if err := tenant.Patch(t.Context(), free, client.MergeFrom(changed)); err != nil {
			t.Errorf("%s: removal of the owner: %v", name, err)
		}
	}

	if err := tenant.Create(t.Context(), owned("v1", "ConfigMap", false)); err != nil {
		t.Errorf("an owner that is no controller: %v", err)
	}

	other := owned("v1", "RecommendationRule", false)
	if err := tenant.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}

	renamed := other.DeepCopy()
	renamed.OwnerReferences[0].APIVersion = "analysis.crane.io/v1alpha1"
	if err := checkRefused(tenant.Patch(t.Context(), renamed, client.MergeFrom(other)), policy); err != nil {
		t.Errorf("an owner of another group becomes a rule: %v", err)
	}
}
