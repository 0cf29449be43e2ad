// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// ActiveRecommendation returns the Recommendation of a type that is applied to a target which several have selected: that of an
// EffectiveVerticalPodAutoscaler before those of rules, then the oldest. It returns nil if none is applicable.
func ActiveRecommendation(all []analysisv1alpha1.Recommendation, kind analysisv1alpha1.AnalysisType) *analysisv1alpha1.Recommendation {
	var oldest *analysisv1alpha1.Recommendation
	for i := range all {
		rec := &all[i]
		if rec.Spec.Type != kind || !Applicable(rec) {
			continue
		}
		if oldest == nil || comparePrecedence(rec, oldest) < 0 {
			oldest = rec
		}
	}
	return oldest
}

func comparePrecedence(a, b *analysisv1alpha1.Recommendation) int {
	return cmp.Or(cmp.Compare(ownerRank(a), ownerRank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// ownerRank returns 0 for the Recommendation of an EffectiveVerticalPodAutoscaler and 1 for others.
func ownerRank(rec *analysisv1alpha1.Recommendation) int {
	if of := metav1.GetControllerOfNoCopy(rec); of != nil && of.Kind == "EffectiveVerticalPodAutoscaler" {
		return 0
	}
	return 1
}

// Applicable reports whether a Recommendation has a value to apply to its target.
func Applicable(rec *analysisv1alpha1.Recommendation) bool {
	return rec.DeletionTimestamp == nil && rec.Status.RecommendedValue != "" &&
		rec.Spec.AdoptionType != analysisv1alpha1.AdoptionTypeStatus
}
