// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
)

// annotationManager is the field manager of the annotations that craned writes on targets. It owns no other field.
const annotationManager = "craned-recommendation"

// retryRefused is the wait before an annotation is written again that another manager owns or that was forbidden, and before a
// missing target is read again. No watch reports such changes.
const retryRefused = 10 * time.Minute

// annotationOf returns the annotation that carries recommendations of a type.
func annotationOf(kind analysisv1alpha1.AnalysisType) (string, bool) {
	switch kind {
	case analysisv1alpha1.AnalysisTypeResource:
		return analysisv1alpha1.AnnotationResourceRecommendation, true
	case analysisv1alpha1.AnalysisTypeReplicas:
		return analysisv1alpha1.AnnotationReplicasRecommendation, true
	case analysisv1alpha1.AnalysisTypeHPA:
		return analysisv1alpha1.AnnotationHPARecommendation, true
	default:
		return "", false
	}
}

// typesOf returns the types of the Recommendations, sorted.
func typesOf(all []analysisv1alpha1.Recommendation) []analysisv1alpha1.AnalysisType {
	var out []analysisv1alpha1.AnalysisType
	for i := range all {
		if !slices.Contains(out, all[i].Spec.Type) {
			out = append(out, all[i].Spec.Type)
		}
	}
	slices.Sort(out)
	return out
}

// annotate writes the value of a Recommendation into the annotation of its target. Conflicts of owners and refusals become the
// reason of the outcome; errors that may pass, other conflicts included, are returned.
func (r *Reconciler) annotate(ctx context.Context, rec *analysisv1alpha1.Recommendation, target client.Object) (outcome, error) {
	annotation, known := annotationOf(rec.Spec.Type)
	if !known {
		return outcome{}, nil
	}
	wait, err := r.writeOnce(ctx, rec, target, annotation)
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		return outcome{reason: analysisv1alpha1.ReasonFailedUpdateRecommendationValue, message: err.Error(), requeueAfter: retryRefused}, nil
	case err != nil && !apierrors.IsNotFound(err): // A deletion event follows.
		return outcome{}, err
	}
	return outcome{requeueAfter: wait}, nil
}

// writeOnce writes the annotation unless it was just written and the cache does not show it yet; then it returns how long to
// wait.
func (r *Reconciler) writeOnce(
	ctx context.Context, rec *analysisv1alpha1.Recommendation, target client.Object, annotation string,
) (wait time.Duration, err error) {
	key := writeKey{targetindex.KeyOf(rec.Spec.TargetRef), annotation}
	if target.GetAnnotations()[annotation] == rec.Status.RecommendedValue {
		r.recentWrites.forget(key)
		return 0, nil
	}
	if wait := r.recentWrites.wait(key, target.GetUID(), rec.Status.RecommendedValue, r.Clock.Now()); wait > 0 {
		return wait, nil
	}
	if err := r.applyAnnotation(ctx, rec, target, annotation); err != nil {
		return 0, err
	}
	r.recentWrites.record(key, target.GetUID(), rec.Status.RecommendedValue, r.Clock.Now())
	return 0, nil
}

// applyAnnotation applies the annotation without force, so that another owner keeps it. The UID prevents that a deleted object is
// created again.
func (r *Reconciler) applyAnnotation(ctx context.Context, rec *analysisv1alpha1.Recommendation, target client.Object, annotation string) error {
	ref := rec.Spec.TargetRef
	apply := identityOf(ref, target)
	apply.SetAnnotations(map[string]string{annotation: rec.Status.RecommendedValue})
	// Each type has a manager of its own: applying one annotation must not remove another.
	manager := annotationManager
	if rec.Spec.Type != analysisv1alpha1.AnalysisTypeResource {
		manager += "-" + string(rec.Spec.Type)
	}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), client.FieldOwner(manager)); err != nil {
		return fmt.Errorf("writing annotation %s on %s %s/%s: %w", annotation, ref.Kind, ref.Namespace, ref.Name, err)
	}
	// No event: the annotation shows the result, and a round over a whole cluster would record one event per workload.
	return nil
}

// identityOf returns an object with the identity of the target and nothing else.
func identityOf(ref corev1.ObjectReference, target client.Object) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetAPIVersion(ref.APIVersion)
	out.SetKind(ref.Kind)
	out.SetNamespace(ref.Namespace)
	out.SetName(ref.Name)
	out.SetUID(target.GetUID())
	return out
}
