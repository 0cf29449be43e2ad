// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// fieldManager owns what craned writes on targets. It owns nothing else, so that its writes can be told apart and
// taken back.
const fieldManager = "craned-recommendation"

// indexTarget finds the Recommendations of a target in the cache.
const indexTarget = "spec.targetRef"

// watched is a kind whose deletion is noticed at once.
type watched struct {
	gvk    schema.GroupVersionKind
	object client.Object
}

// watchedKinds are the kinds that are kept in the cache: they are listed in each round anyway.
func watchedKinds() []watched {
	return []watched{
		{appsv1.SchemeGroupVersion.WithKind("Deployment"), &appsv1.Deployment{}},
		{appsv1.SchemeGroupVersion.WithKind("StatefulSet"), &appsv1.StatefulSet{}},
		{appsv1.SchemeGroupVersion.WithKind("DaemonSet"), &appsv1.DaemonSet{}},
		{batchv1.SchemeGroupVersion.WithKind("CronJob"), &batchv1.CronJob{}},
	}
}

// adopt writes the value on the target if that is asked for. The state says what is in the way, if anything; a wait
// asks for another look after it; the error is for what may go away by itself.
func (r *Reconciler) adopt(
	ctx context.Context, rec *analysisv1alpha1.Recommendation, target client.Object,
) (adopted state, wait time.Duration, err error) {
	fine := state{kind: conditionAdopted, ok: true}
	annotation, known := annotationFor(rec.Spec.Type)
	if rec.Spec.AdoptionType == analysisv1alpha1.AdoptionTypeStatus || rec.Status.RecommendedValue == "" || !known {
		return fine, 0, nil
	}
	first, err := r.speaksFor(ctx, rec)
	if err != nil {
		return fine, 0, err
	}
	if first != rec.Name {
		return state{
			kind: conditionAdopted, reason: reasonOtherRule,
			message: fmt.Sprintf("Recommendation %s, which is older, is the one that is written on the target.", first),
		}, 0, nil
	}
	wait, err = r.annotate(ctx, rec, target, annotation)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		return state{kind: conditionAdopted, reason: analysisv1alpha1.ReasonFailedUpdateRecommendationValue, message: err.Error()}, 0, nil
	case apierrors.IsNotFound(err):
		return fine, 0, nil // Its deletion event comes.
	case err != nil:
		return fine, 0, err
	}
	if rec.Spec.AdoptionType == analysisv1alpha1.AdoptionTypeAuto {
		return state{
			kind: conditionAdopted, reason: reasonAutoNotActing,
			message: "This version of craned does not apply recommendations: the value is in the status and in the annotation, nothing else is changed.",
		}, wait, nil
	}
	return fine, wait, nil
}

// annotationFor returns the annotation that carries recommendations of a type.
func annotationFor(kind analysisv1alpha1.AnalysisType) (string, bool) {
	switch kind {
	case analysisv1alpha1.AnalysisTypeResource:
		return analysisv1alpha1.AnnotationResourceRecommendation, true
	case analysisv1alpha1.AnalysisTypeReplicas:
		return analysisv1alpha1.AnnotationReplicasRecommendation, true
	case analysisv1alpha1.AnalysisTypeHPA:
		return analysisv1alpha1.AnnotationHPARecommendation, true
	case analysisv1alpha1.AnalysisTypeIdleNode, analysisv1alpha1.AnalysisTypeVolume, analysisv1alpha1.AnalysisTypeService:
	}
	return "", false
}

// speaksFor returns the name of the one Recommendation that is written on the target where several rules have chosen
// it: the oldest that wants to be written.
func (r *Reconciler) speaksFor(ctx context.Context, rec *analysisv1alpha1.Recommendation) (string, error) {
	var list analysisv1alpha1.RecommendationList
	err := r.Client.List(ctx, &list, client.InNamespace(rec.Namespace), client.MatchingFields{indexTarget: targetKey(rec)})
	if err != nil {
		return "", fmt.Errorf("listing the recommendations of %s %s: %w", rec.Spec.TargetRef.Kind, rec.Spec.TargetRef.Name, err)
	}
	others := slices.DeleteFunc(list.Items, func(o analysisv1alpha1.Recommendation) bool {
		return o.Spec.Type != rec.Spec.Type || !wantsTarget(&o)
	})
	if len(others) == 0 {
		return rec.Name, nil
	}
	oldest := slices.MinFunc(others, func(a, b analysisv1alpha1.Recommendation) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return oldest.Name, nil
}

// wantsTarget tells whether a Recommendation has something to write on its target.
func wantsTarget(rec *analysisv1alpha1.Recommendation) bool {
	return rec.DeletionTimestamp == nil && rec.Status.RecommendedValue != "" &&
		rec.Spec.AdoptionType != analysisv1alpha1.AdoptionTypeStatus
}

// targetKey is the value of indexTarget.
func targetKey(rec *analysisv1alpha1.Recommendation) string {
	t := rec.Spec.TargetRef
	return groupOf(t.APIVersion) + "/" + t.Kind + "/" + t.Namespace + "/" + t.Name
}

// annotate brings the annotation of the target in line, once: a cache that does not show the write yet is waited for.
func (r *Reconciler) annotate(
	ctx context.Context, rec *analysisv1alpha1.Recommendation, target client.Object, annotation string,
) (wait time.Duration, err error) {
	key := client.ObjectKeyFromObject(rec)
	if target.GetAnnotations()[annotation] == rec.Status.RecommendedValue {
		r.written.forget(key)
		return 0, nil
	}
	if wait := r.written.wait(key, target.GetUID(), rec.Status.RecommendedValue, r.Clock.Now()); wait > 0 {
		return wait, nil
	}
	if err := r.apply(ctx, rec, target, annotation); err != nil {
		return 0, err
	}
	r.written.note(key, target.GetUID(), rec.Status.RecommendedValue, r.Clock.Now())
	return 0, nil
}

// apply writes the one annotation, not by force: if somebody else owns it, that is theirs to say. The UID makes sure
// that an object which was deleted meanwhile is not made anew.
func (r *Reconciler) apply(ctx context.Context, rec *analysisv1alpha1.Recommendation, target client.Object, annotation string) error {
	ref := rec.Spec.TargetRef
	apply := &unstructured.Unstructured{}
	apply.SetAPIVersion(ref.APIVersion)
	apply.SetKind(ref.Kind)
	apply.SetNamespace(ref.Namespace)
	apply.SetName(ref.Name)
	apply.SetUID(target.GetUID())
	apply.SetAnnotations(map[string]string{annotation: rec.Status.RecommendedValue})
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), client.FieldOwner(fieldManager))
	if err != nil {
		return fmt.Errorf("writing annotation %s on %s %s/%s: %w", annotation, ref.Kind, ref.Namespace, ref.Name, err)
	}
	r.Events.Eventf(rec, nil, corev1.EventTypeNormal, reasonAnnotated, "Annotate",
		"Wrote annotation %s on %s %s/%s", annotation, ref.Kind, ref.Namespace, ref.Name)
	return nil
}
