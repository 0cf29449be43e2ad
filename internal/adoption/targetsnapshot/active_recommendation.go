// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// ActiveRecommendation returns the one Recommendation of a type that is brought to the target where several have chosen it: that of a vertical
// autoscaler, which somebody has made for this very target, before those of rules, and of equals the oldest that wants to be.
// It is nil where none does.
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

// ownerRank is 0 for what an EffectiveVerticalPodAutoscaler has decided, and 1 for all else.
func ownerRank(rec *analysisv1alpha1.Recommendation) int {
	if of := metav1.GetControllerOfNoCopy(rec); of != nil && of.Kind == "EffectiveVerticalPodAutoscaler" {
		return 0
	}
	return 1
}

// Applicable tells whether a Recommendation has something to bring to its target.
func Applicable(rec *analysisv1alpha1.Recommendation) bool {
	return rec.DeletionTimestamp == nil && rec.Status.RecommendedValue != "" &&
		rec.Spec.AdoptionType != analysisv1alpha1.AdoptionTypeStatus
}
