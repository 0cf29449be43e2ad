// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// TestRecommendationsNamed checks that crane adopt accepts the names of Recommendations and of workloads, as in the examples of its help.
func TestRecommendationsNamed(t *testing.T) {
	rec := func(name, kind, target string, of analysisv1alpha1.AnalysisType) analysisv1alpha1.Recommendation {
		return analysisv1alpha1.Recommendation{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       analysisv1alpha1.RecommendationSpec{Type: of, TargetRef: corev1.ObjectReference{Kind: kind, Name: target}},
		}
	}

	all := []analysisv1alpha1.Recommendation{
		rec("checkout-hpa-1", "Deployment", "checkout", "HPA"),
		rec("checkout-replicas-1", "Deployment", "checkout", "Replicas"),
		rec("checkout-resource-1", "Deployment", "checkout", "Resource"),
		rec("db", "StatefulSet", "postgres", "Resource"),
		rec("db-resource-1", "StatefulSet", "db", "Resource"),
		rec("db-resource-2", "Deployment", "db", "Resource"),
		rec("twin-resource-1", "Deployment", "twin", "Resource"),
		rec("twin-resource-2", "StatefulSet", "twin", "Resource"),
		rec("old-hpa-1", "Deployment", "old", "HPA"),
	}

	for name, want := range map[string]string{
		"checkout":            "checkout-replicas-1 checkout-resource-1",
		"deployment/checkout": "checkout-replicas-1 checkout-resource-1",
		"checkout-hpa-1":      "checkout-hpa-1",
		"db":                  "db",
		"StatefulSet/db":      "db-resource-1",
		"statefulset/twin":    "twin-resource-2",
		"twin":                "use one of deployment/twin, statefulset/twin",
		"old":                 "no recommendation",
		"daemonset/checkout":  "no recommendation",
		"":                    "no recommendation",
		"deploy/checkout":     "checkout-replicas-1 checkout-resource-1",
		"chekcout":            "did you mean checkout?",
		"deploment/checkout":  "did you mean deployment/checkout?",
	} {
		found, err := recommendationsNamed(all, name)
		var names []string
		for i := range found {
			names = append(names, found[i].Name)
		}

		if got := strings.Join(names, " "); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, %v; want %s", name, got, err, want)
		}
	}
}
