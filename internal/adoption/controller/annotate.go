// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
)

// annotationManager is the field manager of the annotations that craned writes on targets. It owns no other field.
const annotationManager = "craned-recommendation"

// gocraneManager is the field manager of gocrane's craned: the first part of its user agent.
const gocraneManager = "craned"

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

// annotationValue returns the value of the annotation: the document in the field of recommendedValue for the type of the Recommendation, as
// gocrane writes it. It is empty without such a field. The error names a value that does not parse.
func annotationValue(rec *analysisv1alpha1.Recommendation) (string, error) {
	var value analysisv1alpha1.ProposedRecommendation
	if err := yaml.Unmarshal([]byte(rec.Status.RecommendedValue), &value); err != nil {
		return "", fmt.Errorf("recommendedValue: %w", err)
	}

	switch {
	case rec.Spec.Type == analysisv1alpha1.AnalysisTypeResource && value.ResourceRequest != nil:
		for _, c := range value.ResourceRequest.Containers {
			for name, text := range c.Target {
				if _, err := apiresource.ParseQuantity(text); err != nil {
					return "", fmt.Errorf("recommendedValue: container %s: %s %q: %w", c.ContainerName, name, text, err)
				}
			}
		}

		return encodeAnnotation(value.ResourceRequest)

	case rec.Spec.Type == analysisv1alpha1.AnalysisTypeReplicas && value.ReplicasRecommendation != nil:
		return encodeAnnotation(value.ReplicasRecommendation)

	case rec.Spec.Type == analysisv1alpha1.AnalysisTypeHPA && value.EffectiveHPA != nil:
		return encodeAnnotation(value.EffectiveHPA)
	}

	return "", nil
}

func encodeAnnotation(value any) (string, error) {
	raw, err := yaml.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encoding the annotation: %w", err)
	}

	return string(raw), nil
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

// annotator writes recommended values into annotations of targets.
type annotator struct {
	client       client.Client
	live         client.Reader
	clock        clock.PassiveClock
	recentWrites recentWrites
}

// annotate writes value into the annotation of the target. Conflicts of owners and refusals become the
// reason of the outcome; transient errors, other conflicts included, are returned.
func (a *annotator) annotate(ctx context.Context, rec *analysisv1alpha1.Recommendation, target client.Object, value string) (outcome, error) {
	annotation, supported := annotationOf(rec.Spec.Type)
	if !supported {
		return outcome{}, nil
	}

	wait, err := a.writeOnce(ctx, rec, target, annotation, value)
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		return outcome{reason: analysisv1alpha1.ReasonFailedUpdateRecommendationValue, message: err.Error(), requeueAfter: retryRefused}, nil
	case err != nil && !apierrors.IsNotFound(err): // A deletion event follows.
		return outcome{}, err
	}

	return outcome{requeueAfter: wait}, nil
}

// remove removes the annotation of a Recommendation from its target where craned owns it: nothing updates the value any more.
func (a *annotator) remove(ctx context.Context, rec *analysisv1alpha1.Recommendation, target client.Object) (outcome, error) {
	annotation, _ := annotationOf(rec.Spec.Type)
	if _, exists := target.GetAnnotations()[annotation]; !exists {
		return outcome{}, nil
	}

	apply := identityOf(rec.Spec.TargetRef, target)
	_, owned, err := a.soleOwner(ctx, apply, annotation, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == annotationManagerOf(rec.Spec.Type) && entry.Operation == metav1.ManagedFieldsOperationApply
	})
	if err != nil || !owned {
		return outcome{}, client.IgnoreNotFound(err)
	}

	// An apply without the annotation removes it.
	err = a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), client.FieldOwner(annotationManagerOf(rec.Spec.Type)))
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		return outcome{reason: analysisv1alpha1.ReasonFailedUpdateRecommendationValue, message: err.Error(), requeueAfter: retryRefused}, nil
	case client.IgnoreNotFound(err) != nil:
		return outcome{}, fmt.Errorf("removing annotation %s of %s %s/%s: %w", annotation, rec.Spec.TargetRef.Kind, rec.Namespace, target.GetName(), err)
	}

	return outcome{}, nil
}

// annotationManagerOf returns the field manager of the annotation of a type. Each type has its own: applying one annotation must not remove
// another.
func annotationManagerOf(kind analysisv1alpha1.AnalysisType) string {
	if kind == analysisv1alpha1.AnalysisTypeResource {
		return annotationManager
	}

	return annotationManager + "-" + string(kind)
}

// writeOnce writes the annotation unless it was just written and the cache does not show it yet; then it returns how long to
// wait.
func (a *annotator) writeOnce(
	ctx context.Context, rec *analysisv1alpha1.Recommendation, target client.Object, annotation, value string,
) (wait time.Duration, err error) {
	key := writeKey{targetindex.KeyOf(rec.Spec.TargetRef), annotation}
	if target.GetAnnotations()[annotation] == value {
		a.recentWrites.forget(key)
		return 0, nil
	}

	if wait := a.recentWrites.wait(key, target.GetUID(), value, a.clock.Now()); wait > 0 {
		return wait, nil
	}

	if err := a.applyAnnotation(ctx, rec, target, annotation, value); err != nil {
		return 0, err
	}

	a.recentWrites.record(key, target.GetUID(), value, a.clock.Now())
	return 0, nil
}

// applyAnnotation applies the annotation without force, so that another owner keeps it; gocrane's craned alone loses it. The UID prevents
// that a deleted object is created again.
func (a *annotator) applyAnnotation(ctx context.Context, rec *analysisv1alpha1.Recommendation, target client.Object, annotation, value string) error {
	ref := rec.Spec.TargetRef
	apply := identityOf(ref, target)
	apply.SetAnnotations(map[string]string{annotation: value})

	manager := annotationManagerOf(rec.Spec.Type)
	err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), client.FieldOwner(manager))
	if apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		version, legacy, readErr := a.soleOwner(ctx, apply, annotation, isGocrane)
		switch {
		case readErr != nil:
			err = readErr
		case legacy:
			apply.SetResourceVersion(version) // Refused if another manager has changed the object since.
			err = a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), client.FieldOwner(manager), client.ForceOwnership)
		}
	}

	if err != nil {
		return fmt.Errorf("writing annotation %s on %s %s/%s: %w", annotation, ref.Kind, ref.Namespace, ref.Name, err)
	}

	// No event: the annotation shows the result, and a run over a whole cluster would record one event per workload.
	return nil
}

// isGocrane reports whether fields are of gocrane's craned, which wrote annotations by an update of the status subresource, under the name of
// its binary.
func isGocrane(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == gocraneManager && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "status"
}

// soleOwner reports whether the managers that match are the only owners of an annotation of a target, and at which version of the object.
func (a *annotator) soleOwner(
	ctx context.Context, target *unstructured.Unstructured, annotation string, matches func(metav1.ManagedFieldsEntry) bool,
) (version string, owned bool, err error) {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(target.GroupVersionKind())

	if err := a.live.Get(ctx, client.ObjectKeyFromObject(target), live); err != nil {
		return "", false, fmt.Errorf("reading the owners of the annotation: %w", err)
	}

	field := fieldpath.MakePathOrDie("metadata", "annotations", annotation)
	for _, entry := range live.ManagedFields {
		if entry.FieldsV1 == nil {
			continue
		}

		var fields fieldpath.Set
		if err := fields.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return "", false, fmt.Errorf("reading the fields of manager %s: %w", entry.Manager, err)
		}

		if !fields.Has(field) {
			continue
		}

		if !matches(entry) { // Another manager owns the annotation too: it stays.
			return "", false, nil
		}

		owned = true
	}

	return live.ResourceVersion, owned, nil
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
