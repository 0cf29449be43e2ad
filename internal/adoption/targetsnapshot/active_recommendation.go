// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
)

// ActiveRecommendation returns the Recommendation of a type that is applied to a target which several have selected: that of an
// EffectiveVerticalPodAutoscaler, according to AutoscalerOwned, before those of rules, then the oldest. It returns nil if none is
// applicable.
func ActiveRecommendation(
	all []analysisv1alpha1.Recommendation, kind analysisv1alpha1.AnalysisType, autoscalerOwned sets.Set[client.ObjectKey],
) *analysisv1alpha1.Recommendation {
	var first *analysisv1alpha1.Recommendation
	rank := func(rec *analysisv1alpha1.Recommendation) int {
		if autoscalerOwned.Has(client.ObjectKeyFromObject(rec)) {
			return 0
		}

		return 1
	}

	for i := range all {
		rec := &all[i]
		if rec.Spec.Type != kind || !Applicable(rec) {
			continue
		}

		if first == nil || cmp.Or(cmp.Compare(rank(rec), rank(first)), rec.CreationTimestamp.Compare(first.CreationTimestamp.Time),
			cmp.Compare(rec.Namespace, first.Namespace), cmp.Compare(rec.Name, first.Name)) < 0 {
			first = rec
		}
	}

	return first
}

// AutoscalerOwned returns the keys of the Recommendations whose controller is an EffectiveVerticalPodAutoscaler. An owner reference can be
// written by anyone who may write the Recommendation, so the autoscaler is read: it must have the UID of the reference and select the target.
func AutoscalerOwned(ctx context.Context, live client.Reader, all []analysisv1alpha1.Recommendation) (sets.Set[client.ObjectKey], error) {
	out := sets.New[client.ObjectKey]()
	for i := range all {
		rec := &all[i]
		owner := metav1.GetControllerOfNoCopy(rec)
		if owner == nil || owner.Kind != "EffectiveVerticalPodAutoscaler" || !Applicable(rec) {
			continue
		}

		evpa := &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}
		err := live.Get(ctx, client.ObjectKey{Namespace: rec.Namespace, Name: owner.Name}, evpa)
		switch {
		case apierrors.IsNotFound(err) || err != nil && meta.IsNoMatchError(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("reading the owner of recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
		}

		selected := evpa.Spec.TargetRef
		ref := corev1.ObjectReference{
			APIVersion: selected.APIVersion,
			Kind:       selected.Kind,
			Namespace:  evpa.Namespace,
			Name:       selected.Name,
		}
		// A new autoscaler of the same name has another UID.
		if evpa.UID == owner.UID && isSameObject(ref, rec.Spec.TargetRef) {
			out.Insert(client.ObjectKeyFromObject(rec))
		}
	}

	return out, nil
}

// Applicable reports whether a Recommendation has a value to apply to its target.
func Applicable(rec *analysisv1alpha1.Recommendation) bool {
	return rec.DeletionTimestamp == nil && rec.Status.RecommendedValue != "" &&
		rec.Spec.AdoptionType != analysisv1alpha1.AdoptionTypeStatus
}

// Reacts reports whether adoption raises the running pods of a Recommendation within the day, once it is calibrated.
func Reacts(rec *analysisv1alpha1.Recommendation, systemNamespace string) bool {
	key := targetindex.KeyOf(rec.Spec.TargetRef)
	if _, ok := SupportedKind(key.Group, key.Kind); !ok || !targetindex.IsPermitted(rec, systemNamespace) {
		return false
	}

	reach := analysisv1alpha1.AdoptionReachInPlace
	if rec.Spec.Adoption != nil && rec.Spec.Adoption.Reach != "" {
		reach = rec.Spec.Adoption.Reach
	}

	return rec.Spec.Type == analysisv1alpha1.AnalysisTypeResource && rec.Spec.AdoptionType == analysisv1alpha1.AdoptionTypeAuto &&
		(reach == analysisv1alpha1.AdoptionReachInPlace || reach == analysisv1alpha1.AdoptionReachInPlaceOrRecreate)
}
