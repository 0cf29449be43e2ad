// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// TestSetAdoptionLabel_ClusterScopedTarget checks that a Recommendation of a tenant cannot make a click of an operator label a Node or a
// Namespace.
func TestSetAdoptionLabel_ClusterScopedTarget(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
	).Build()

	for target, o := range map[corev1.ObjectReference]client.Object{
		{APIVersion: "v1", Kind: "Node", Name: "node-1"}:    &corev1.Node{},
		{APIVersion: "v1", Kind: "Namespace", Name: "shop"}: &corev1.Namespace{},
	} {
		rec := &analysisv1alpha1.Recommendation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "forged"}}
		rec.Spec.TargetRef = target

		err := setAdoptionLabel(t.Context(), c, rec, analysisv1alpha1.LabelAdoptionOff, nil)
		if err == nil || !strings.Contains(err.Error(), "not adopted") {
			t.Errorf("setAdoptionLabel of %s = %v, want a refusal", target.Kind, err)
		}

		if err := c.Get(t.Context(), client.ObjectKey{Name: target.Name}, o); err != nil {
			t.Fatal(err)
		}
		if o.GetLabels()[analysisv1alpha1.LabelAdoption] != "" {
			t.Errorf("%s %s has labels %v, want none of Crane", target.Kind, target.Name, o.GetLabels())
		}
	}
}
