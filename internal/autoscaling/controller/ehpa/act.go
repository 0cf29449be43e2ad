// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// Reasons and actions of events.
const (
	eventCreated  = "Created"
	eventUpdated  = "Updated"
	eventDeleted  = "Deleted"
	eventAdopted  = "HPAAdopted"
	eventReleased = "HPAReleased"
	eventScaled   = "Scaled"
	eventFailed   = "Failed"
)

// errNameTaken means that an object of the name belongs to somebody else.
var errNameTaken = errors.New("an object of this name belongs to somebody else")

// act brings the cluster in line with the plan. What fails is said in the plan's conditions; the error is what another try may
// mend.
func (r *Reconciler) act(ctx context.Context, o *observation, p *plan) error {
	if p.keepObjects {
		return o.retryableTargetError()
	}
	var failed []error
	note := func(into **conditionState, reason string, err error) bool {
		if err == nil {
			return true
		}
		if apierrors.IsConflict(err) { // Somebody was faster; nothing is wrong.
			failed = append(failed, err)
			return false
		}
		*into = &conditionState{reason: reason, message: err.Error()}
		if !errors.Is(err, errNameTaken) && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			failed = append(failed, err)
		} else {
			p.checkAt(o.now.Add(missingTargetRetry))
		}
		return false
	}
	// Before the HPA what it stands on, after it what it no longer needs: at no time does it point at nothing.
	fine := true
	if p.substitute != nil {
		fine = note(&p.ready, autoscalingv1alpha1.ReasonFailedReconcileSubstitute, createOrPatch(ctx, r, o, p.substitute, o.substitute, substituteDiffers))
	}
	if p.tsp != nil {
		note(&p.prediction, autoscalingv1alpha1.ReasonFailedReconcilePrediction, createOrPatch(ctx, r, o, p.tsp, o.tsp, tspDiffers))
	}
	if fine {
		fine = note(&p.ready, autoscalingv1alpha1.ReasonFailedReconcileHPA, r.applyHPA(ctx, o, p))
	}
	if p.substitute == nil && o.substitute != nil && fine {
		note(&p.ready, autoscalingv1alpha1.ReasonFailedReconcileSubstitute, r.deleteOwned(ctx, o, o.substitute))
	}
	if p.tsp == nil && o.tsp != nil && fine {
		note(&p.prediction, autoscalingv1alpha1.ReasonFailedReconcilePrediction, r.deleteOwned(ctx, o, o.tsp))
	}
	if p.replicas != nil && fine {
		scaled, err := r.setReplicas(ctx, o, *p.replicas)
		note(&p.ready, autoscalingv1alpha1.ReasonFailedScale, err)
		p.scaled = scaled
	}
	return errors.Join(append(failed, o.retryableTargetError())...)
}

// retryableTargetError is the error of the target that another try may mend.
func (o *observation) retryableTargetError() error {
	if o.targetErr == nil || errors.Is(o.targetErr, workload.ErrNoTarget) || errors.Is(o.targetErr, workload.ErrNoScale) {
		return nil
	}
	return o.targetErr
}

// applyHPA brings the HPA in line, and gives back what is not wanted any more.
func (r *Reconciler) applyHPA(ctx context.Context, o *observation, p *plan) error {
	for _, hpa := range o.adoptedToRelease {
		if err := r.release(ctx, o, hpa); err != nil {
			return err
		}
	}
	have := o.hpa
	if p.hpa != nil {
		if o.adoptable != nil && p.hpa.Name == o.adoptable.Name {
			have = o.adoptable
		}
		if err := createOrPatch(ctx, r, o, p.hpa, have, hpaDiffers); err != nil {
			return err
		}
		if have == o.adoptable && have != nil {
			r.recordEvent(o, corev1.EventTypeNormal, eventAdopted, "took over HorizontalPodAutoscaler %s", have.Name)
		}
	}
	for _, hpa := range append(o.duplicates, o.hpa) {
		if hpa != nil && (p.hpa == nil || hpa.Name != p.hpa.Name) {
			if err := r.deleteOwned(ctx, o, hpa); err != nil {
				return err
			}
		}
	}
	return nil
}

// createOrPatch creates an object, or changes the one that is there; where nothing differs it sends nothing.
func createOrPatch[T client.Object](ctx context.Context, r *Reconciler, o *observation, want, have T, differs func(a, b T) bool) error {
	kind := eventKind(want)
	if any(have) == any(*new(T)) {
		if err := r.create(ctx, o, want); err != nil {
			return fmt.Errorf("%s %s: %w", kind, want.GetName(), err)
		}
		r.recordEvent(o, corev1.EventTypeNormal, kind+eventCreated, "created %s %s", kind, want.GetName())
		return nil
	}
	if !differs(want, have) && equality.Semantic.DeepEqual(want.GetLabels(), have.GetLabels()) &&
		equality.Semantic.DeepEqual(want.GetAnnotations(), have.GetAnnotations()) &&
		equality.Semantic.DeepEqual(want.GetOwnerReferences(), have.GetOwnerReferences()) {
		return nil
	}
	// What is taken over is kept as it was, and what is ours is changed from what was seen: it has to be what is there.
	if err := r.Client.Patch(ctx, want, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("%s %s: %w", kind, want.GetName(), err)
	}
	r.recordEvent(o, corev1.EventTypeNormal, kind+eventUpdated, "updated %s %s", kind, want.GetName())
	return nil
}

func eventKind(o client.Object) string {
	switch o.(type) {
	case *autoscalingv2.HorizontalPodAutoscaler:
		return "HPA"
	case *autoscalingv1alpha1.Substitute:
		return kindSubstitute
	default:
		return "Prediction"
	}
}

// create makes an object. One that is there already is fine where it is the autoscaler's: the cache was behind.
func (r *Reconciler) create(ctx context.Context, o *observation, want client.Object) error {
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

func (r *Reconciler) deleteOwned(ctx context.Context, o *observation, have client.Object) error {
	uid := have.GetUID()
	err := r.Client.Delete(ctx, have, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", eventKind(have), have.GetName(), err)
	}
	if err == nil {
		r.recordEvent(o, corev1.EventTypeNormal, eventKind(have)+eventDeleted, "deleted %s %s", eventKind(have), have.GetName())
	}
	return nil
}

// release gives an HPA that was taken over its old spec and its freedom back.
func (r *Reconciler) release(ctx context.Context, o *observation, have *autoscalingv2.HorizontalPodAutoscaler) error {
	want := have.DeepCopy()
	var before autoscalingv2.HorizontalPodAutoscalerSpec
	if err := json.Unmarshal([]byte(have.Annotations[autoscalingv1alpha1.AnnotationAdoptedSpec]), &before); err != nil {
		return fmt.Errorf("giving HorizontalPodAutoscaler %s back: annotation %s: %w", have.Name, autoscalingv1alpha1.AnnotationAdoptedSpec, err)
	}
	want.Spec = before
	delete(want.Annotations, autoscalingv1alpha1.AnnotationAdoptedSpec)
	for label := range managedLabels(o.ehpa, have.Name) {
		delete(want.Labels, label)
	}
	var owners []metav1.OwnerReference
	for _, ref := range have.OwnerReferences {
		if ref.UID != o.ehpa.UID {
			owners = append(owners, ref)
		}
	}
	want.OwnerReferences = owners
	if err := r.Client.Patch(ctx, want, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("giving HorizontalPodAutoscaler %s back: %w", have.Name, err)
	}
	r.recordEvent(o, corev1.EventTypeNormal, eventReleased, "gave HorizontalPodAutoscaler %s back", have.Name)
	return nil
}

// setReplicas sets the target to a fixed number, and tells whether that was needed.
func (r *Reconciler) setReplicas(ctx context.Context, o *observation, replicas int32) (bool, error) {
	ref := targetRef(o.ehpa)
	from, err := r.Targets.Set(ctx, ref, replicas)
	if err != nil || from == replicas { // The cache may be behind.
		return false, err
	}
	r.recordEvent(o, corev1.EventTypeNormal, eventScaled, "set %s %s from %d to %d replicas, as specificReplicas says", ref.Kind, ref.Name, from, replicas)
	return true, nil
}

func (r *Reconciler) recordEvent(o *observation, kind, reason, format string, args ...any) {
	r.Events.Eventf(o.ehpa, nil, kind, reason, "Scale", format, args...)
}

func hpaDiffers(a, b *autoscalingv2.HorizontalPodAutoscaler) bool {
	return !equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func substituteDiffers(a, b *autoscalingv1alpha1.Substitute) bool {
	return !equality.Semantic.DeepEqual(a.Spec.SubstituteTargetRef, b.Spec.SubstituteTargetRef)
}

func tspDiffers(a, b *predictionv1alpha1.TimeSeriesPrediction) bool {
	return !equality.Semantic.DeepEqual(a.Spec, b.Spec)
}
