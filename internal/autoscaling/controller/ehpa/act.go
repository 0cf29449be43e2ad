// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/condition"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/units"
)

// Reasons of events, or their suffixes.
const (
	eventCreated  = "Created"
	eventUpdated  = "Updated"
	eventDeleted  = "Deleted"
	eventAdopted  = "HPAAdopted"
	eventReleased = "HPAReleased"
	eventScaled   = "Scaled"
)

// errNameTaken means that an object with the name exists which the autoscaler does not control.
var errNameTaken = errors.New("an object with this name exists and has another owner")

// applied is the outcome of executing a plan.
type applied struct {
	// ready and predictionReady replace the conditions of the plan after a failure; nil after none.
	ready, predictionReady *condition.State
	// scaled reports that the target was set to a specific number of replicas.
	scaled bool
	// err is worth a retry with backoff; retryAt is the time of a retry without.
	err     error
	retryAt time.Time
}

// failure returns the condition for an error, or nil where the condition stays, and records when to retry. A conflict is retried
// without a condition.
func (a *applied) failure(conditionType, reason string, now time.Time, err error) *condition.State {
	switch {
	case apierrors.IsConflict(err):
		a.err = errors.Join(a.err, err)
		return nil
	case errors.Is(err, errNameTaken) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
		a.retryAt = now.Add(missingTargetRetry)
	default:
		a.err = errors.Join(a.err, err)
	}

	return &condition.State{Type: conditionType, Reason: reason, Message: err.Error()}
}

// act changes the objects in the cluster as planned. Objects that the HPA needs are created before it and deleted after it, so that it
// never refers to a missing one.
func (r *Reconciler) act(ctx context.Context, o observation, p plan) applied {
	var out applied
	if p.keepObjects {
		return applied{err: o.retryableTargetError()}
	}

	ready := func(reason string, err error) bool {
		if err != nil {
			out.ready = out.failure(autoscalingv1alpha1.ConditionReady, reason, o.now, err)
		}

		return err == nil
	}

	prediction := func(err error) {
		if err != nil {
			out.predictionReady = out.failure(autoscalingv1alpha1.ConditionPredictionReady, autoscalingv1alpha1.ReasonFailedReconcilePrediction, o.now, err)
		}
	}

	fine := p.substitute == nil ||
		ready(autoscalingv1alpha1.ReasonFailedReconcileSubstitute, createOrPatch(ctx, r, o, p.substitute, o.substitute, substituteDiffers))

	if p.forecasts.prediction != nil {
		prediction(createOrPatch(ctx, r, o, p.forecasts.prediction, o.prediction, predictionDiffers))
	}

	// Objects that are no longer wanted are deleted last, so that the target always has an autoscaler.
	if fine && ready(autoscalingv1alpha1.ReasonFailedReconcileHPA, r.applyHPA(ctx, o, p.hpa)) {
		if p.substitute == nil && o.substitute != nil {
			ready(autoscalingv1alpha1.ReasonFailedReconcileSubstitute, r.deleteOwned(ctx, o, o.substitute))
		}
		if p.forecasts.prediction == nil && o.prediction != nil {
			prediction(r.deleteOwned(ctx, o, o.prediction))
		}

		if p.replicas != nil {
			scaled, err := r.setReplicas(ctx, o, *p.replicas)
			ready(autoscalingv1alpha1.ReasonFailedScale, err)
			out.scaled = scaled
		}
	}

	out.err = errors.Join(out.err, o.retryableTargetError())
	return out
}

// retryableTargetError returns the error of reading the target where a retry may succeed.
func (o observation) retryableTargetError() error {
	if errors.Is(o.targetErr, workload.ErrNoTarget) || errors.Is(o.targetErr, workload.ErrNoScale) {
		return nil
	}

	return o.targetErr
}

// applyHPA releases adopted HPAs, creates, adopts or updates the desired HPA and deletes all others that the autoscaler controls and created.
func (r *Reconciler) applyHPA(ctx context.Context, o observation, want *autoscalingv2.HorizontalPodAutoscaler) error {
	for _, hpa := range o.adoptedToRelease {
		if err := r.release(ctx, o, hpa); err != nil {
			return err
		}
	}

	if want != nil {
		have := o.hpa
		adopts := o.adoptable != nil && want.Name == o.adoptable.Name
		if adopts {
			have = o.adoptable
		}

		if err := createOrPatch(ctx, r, o, want, have, hpaDiffers); err != nil {
			return err
		}

		if adopts {
			r.recordEventf(o, corev1.EventTypeNormal, eventAdopted, "adopted HorizontalPodAutoscaler %s", have.Name)
		}
	}

	// Only one HPA may remain. An adopted one is given back as it was, others were created by Crane.
	for _, hpa := range append(o.duplicates, o.hpa) {
		if hpa == nil || want != nil && hpa.Name == want.Name {
			continue
		}

		var err error
		if _, adopted := hpa.Annotations[autoscalingv1alpha1.AnnotationAdoptedSpec]; adopted {
			err = r.release(ctx, o, hpa)
		} else {
			err = r.deleteOwned(ctx, o, hpa)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// createOrPatch creates an object, or patches the existing one. It sends nothing where the two are equal.
func createOrPatch[T client.Object](ctx context.Context, r *Reconciler, o observation, want, have T, differs func(a, b T) bool) error {
	kind := eventKind(want)
	if any(have) == any(*new(T)) {
		if err := r.create(ctx, o, want); err != nil {
			return fmt.Errorf("%s %s: %w", kind, want.GetName(), err)
		}

		r.recordEventf(o, corev1.EventTypeNormal, kind+eventCreated, "created %s %s", kind, want.GetName())
		return nil
	}

	if !differs(want, have) && equality.Semantic.DeepEqual(want.GetLabels(), have.GetLabels()) &&
		equality.Semantic.DeepEqual(want.GetAnnotations(), have.GetAnnotations()) &&
		equality.Semantic.DeepEqual(want.GetOwnerReferences(), have.GetOwnerReferences()) {
		return nil
	}

	// The lock ensures that the annotation with the spec of an adopted HPA is not stale.
	if err := r.Client.Patch(ctx, want, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("%s %s: %w", kind, want.GetName(), err)
	}

	r.recordEventf(o, corev1.EventTypeNormal, kind+eventUpdated, "updated %s %s", kind, want.GetName())
	return nil
}

func eventKind(o client.Object) string {
	switch o.(type) {
	case *autoscalingv2.HorizontalPodAutoscaler:
		return "HPA"
	case *autoscalingv1alpha1.Substitute:
		return substituteKind
	default:
		return "Prediction"
	}
}

// create creates an object. An existing one that the autoscaler controls is no error, because the cache may lag behind.
func (r *Reconciler) create(ctx context.Context, o observation, want client.Object) error {
	key := client.ObjectKeyFromObject(want)
	err := r.Client.Create(ctx, want)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}

	found, ok := want.DeepCopyObject().(client.Object)
	if !ok {
		return err
	}

	if err := r.Live.Get(ctx, key, found); err != nil {
		return err
	}

	if metav1.IsControlledBy(found, o.ehpa) {
		return nil
	}

	return errNameTaken
}

func (r *Reconciler) deleteOwned(ctx context.Context, o observation, have client.Object) error {
	err := r.Client.Delete(ctx, have, client.Preconditions{UID: new(have.GetUID())})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", eventKind(have), have.GetName(), err)
	}

	if err == nil {
		r.recordEventf(o, corev1.EventTypeNormal, eventKind(have)+eventDeleted, "deleted %s %s", eventKind(have), have.GetName())
	}

	return nil
}

// release restores the spec of an adopted HPA and removes the autoscaler as its controller.
func (r *Reconciler) release(ctx context.Context, o observation, have *autoscalingv2.HorizontalPodAutoscaler) error {
	want := have.DeepCopy()
	want.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{}
	if err := json.Unmarshal([]byte(have.Annotations[autoscalingv1alpha1.AnnotationAdoptedSpec]), &want.Spec); err != nil {
		return fmt.Errorf("releasing HorizontalPodAutoscaler %s: annotation %s: %w", have.Name, autoscalingv1alpha1.AnnotationAdoptedSpec, err)
	}

	delete(want.Annotations, autoscalingv1alpha1.AnnotationAdoptedSpec)
	for label := range managedLabels(o.ehpa, have.Name) {
		delete(want.Labels, label)
	}

	want.OwnerReferences = slices.DeleteFunc(want.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == o.ehpa.UID })
	if err := r.Client.Patch(ctx, want, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("releasing HorizontalPodAutoscaler %s: %w", have.Name, err)
	}

	r.recordEventf(o, corev1.EventTypeNormal, eventReleased, "released HorizontalPodAutoscaler %s", have.Name)
	return nil
}

// setReplicas sets the replicas of the target and reports whether they changed.
func (r *Reconciler) setReplicas(ctx context.Context, o observation, replicas int32) (bool, error) {
	ref := targetRef(o.ehpa)
	from, err := r.Targets.Set(ctx, ref, replicas)
	if err != nil || from == replicas { // The cache may lag behind.
		return false, err
	}

	r.recordEventf(o, corev1.EventTypeNormal, eventScaled, "scaled %s %s from %d to %s (specificReplicas)", ref.Kind, ref.Name, from, units.FormatCount(int(replicas), "replica"))
	return true, nil
}

func (r *Reconciler) recordEventf(o observation, eventType, reason, format string, args ...any) {
	r.Events.Eventf(o.ehpa, nil, eventType, reason, "Scale", format, args...)
}

func hpaDiffers(a, b *autoscalingv2.HorizontalPodAutoscaler) bool {
	return !equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func substituteDiffers(a, b *autoscalingv1alpha1.Substitute) bool {
	return !equality.Semantic.DeepEqual(a.Spec.SubstituteTargetRef, b.Spec.SubstituteTargetRef)
}

func predictionDiffers(a, b *predictionv1alpha1.TimeSeriesPrediction) bool {
	return !equality.Semantic.DeepEqual(a.Spec, b.Spec)
}
