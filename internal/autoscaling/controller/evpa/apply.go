// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/condition"
	"crane.io/crane/internal/kube/objectname"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/units"
)

// autoscalerKind is the kind of the autoscalers in owner references.
const autoscalerKind = "EffectiveVerticalPodAutoscaler"

// apply writes the status, then the Recommendation. After a failure in between, a recorded change is made by the next reconcile; in the
// reverse order, a change without its time in the status would not count for the stabilization window.
func (r *Reconciler) apply(ctx context.Context, s autoscalerState, p plan) error {
	if err := r.updateStatus(ctx, s, p); err != nil {
		return err
	}

	switch p.action {
	case deleteRecommendation:
		return r.deleteRecommendation(ctx, s.recommendation)
	case writeRecommendation:
		return r.writeRecommendation(ctx, s, p)
	}

	return nil
}

// updateStatus patches the status where it changed.
func (r *Reconciler) updateStatus(ctx context.Context, s autoscalerState, p plan) error {
	changed := s.evpa.DeepCopy()
	changed.Status = newStatus(s, p, r.Clock.Now())
	if equality.Semantic.DeepEqual(changed.Status, s.evpa.Status) {
		return nil
	}

	err := r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(s.evpa, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of the vertical autoscaler %s/%s: %w", s.evpa.Namespace, s.evpa.Name, err)
	}

	if c := condition.BecameFalse(s.evpa.Status.Conditions, changed.Status.Conditions, autoscalingv1alpha1.ConditionReady); c != nil {
		r.Events.Eventf(s.evpa, nil, corev1.EventTypeWarning, c.Reason, "Estimate", "%s", c.Message)
	}

	return nil
}

// recommendationName returns the name of an autoscaler's Recommendation. A long name is truncated and ends in a hash.
func recommendationName(evpa string) string { return objectname.Shorten("evpa-" + evpa) }

// deleteRecommendation deletes a Recommendation, nil for none, whereupon adoption restores the original requests.
func (r *Reconciler) deleteRecommendation(ctx context.Context, rec *analysisv1alpha1.Recommendation) error {
	if rec == nil {
		return nil
	}

	if err := client.IgnoreNotFound(r.Client.Delete(ctx, rec, client.Preconditions{UID: &rec.UID})); err != nil {
		return fmt.Errorf("deleting recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}

	return nil
}

// writeRecommendation creates or patches the Recommendation of the autoscaler and its status.
func (r *Reconciler) writeRecommendation(ctx context.Context, s autoscalerState, p plan) error {
	rec := s.recommendation
	if rec == nil {
		rec = &analysisv1alpha1.Recommendation{ObjectMeta: metav1.ObjectMeta{Namespace: s.evpa.Namespace, Name: recommendationName(s.evpa.Name)}}
		s.fillSpec(rec, p)

		err := r.Client.Create(ctx, rec)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("creating recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
		}
	} else {
		changed := rec.DeepCopy()
		s.fillSpec(changed, p)

		if !equality.Semantic.DeepEqual(changed, rec) {
			if err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(rec, client.MergeFromWithOptimisticLock{})); err != nil {
				return fmt.Errorf("writing recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
			}

			rec = changed
		}
	}

	// The status is a subresource, so it takes a second request.
	changed := rec.DeepCopy()
	if err := s.fillStatus(changed, p, r.Clock.Now()); err != nil {
		return err
	}

	if equality.Semantic.DeepEqual(changed.Status, rec.Status) {
		return nil
	}

	if err := r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(rec, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the status of recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}

	return nil
}

// fillSpec sets all but the status.
func (s autoscalerState) fillSpec(rec *analysisv1alpha1.Recommendation, p plan) {
	rec.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: autoscalerKind, Name: s.evpa.Name, UID: s.evpa.UID,
		Controller: new(true), BlockOwnerDeletion: new(false),
	}}

	if p.scalePoint.annotation != "" {
		metav1.SetMetaDataAnnotation(&rec.ObjectMeta, analysisv1alpha1.AnnotationScalePoint, p.scalePoint.annotation)
	} else {
		delete(rec.Annotations, analysisv1alpha1.AnnotationScalePoint)
	}

	target := s.target
	rec.Spec.TargetRef = corev1.ObjectReference{
		APIVersion: target.APIVersion,
		Kind:       target.Kind,
		Namespace:  target.Namespace,
		Name:       target.Name,
		UID:        target.UID,
	}

	rec.Spec.Type = analysisv1alpha1.AnalysisTypeResource
	rec.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeAuto
	rec.Spec.Adoption = &analysisv1alpha1.AdoptionSpec{Reach: adoptionReach(s.mode)}
	if u := s.evpa.Spec.UpdatePolicy; u != nil {
		rec.Spec.Adoption.MinReplicas = u.MinReplicas
	}
}

// fillStatus sets the status except for the conditions of other controllers.
func (s autoscalerState) fillStatus(rec *analysisv1alpha1.Recommendation, p plan, now time.Time) error {
	spec := podSkeleton(s.target)
	value, info, err := targetsnapshot.EncodeSize(s.target.Kind, spec, p.size)
	if err != nil {
		return err
	}

	_, current, err := targetsnapshot.EncodeSize(s.target.Kind, spec, templateSize(s.target, p.size))
	if err != nil {
		return err
	}

	// The time is that of the last change of the value, as it is for Recommendations of rules.
	to := &rec.Status
	if to.RecommendedValue != value || to.RecommendedInfo != info {
		to.LastUpdateTime = &metav1.Time{Time: now}
	}

	to.RecommendedValue = value
	to.RecommendedInfo = info
	to.CurrentInfo = current

	to.Description = p.description
	to.Action = analysisv1alpha1.ActionNone
	if changesTemplate(s.target, p.sizings) {
		to.Action = analysisv1alpha1.ActionPatch
	}

	set := func(conditionType, reason, message string, present, ok bool) {
		if !present {
			meta.RemoveStatusCondition(&to.Conditions, conditionType)
			return
		}

		condition.State{
			Type:    conditionType,
			OK:      ok,
			Reason:  reason,
			Message: message,
		}.Set(&to.Conditions, rec.Generation, now)
	}

	set(analysisv1alpha1.ConditionReady, analysisv1alpha1.ReasonRecommendationReady, "decided by "+autoscalerKind+" "+s.evpa.Name, true, true)
	set(analysisv1alpha1.ConditionFailed, reasonEstimatorFailed, p.failures, p.failures != "", true)
	set(analysisv1alpha1.ConditionApplicable, reasonNotOwned, p.scalePoint.message, p.scalePoint.foreignScaler != "", false)

	return nil
}

// podSkeleton returns a pod with the names of a workload's containers, with init containers apart.
func podSkeleton(w workload.Workload) *corev1.PodSpec {
	out := &corev1.PodSpec{}
	for _, c := range w.Containers {
		to := &out.Containers
		if c.Role != workload.App {
			to = &out.InitContainers
		}

		*to = append(*to, corev1.Container{Name: c.Name})
	}

	return out
}

// templateSize returns the requests and limits of the pod template for the resources in a size.
func templateSize(w workload.Workload, size adoption.Size) adoption.Size {
	spec := podSkeleton(w)
	list := func(r workload.Resources) corev1.ResourceList {
		out := corev1.ResourceList{}
		for name, v := range map[corev1.ResourceName]int64{corev1.ResourceCPU: int64(r.CPU), corev1.ResourceMemory: int64(r.Memory)} {
			if v > 0 {
				out[name] = newQuantity(units.Resource(name), v)
			}
		}

		return out
	}

	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c, _ := w.Container(containers[i].Name)
			containers[i].Resources = corev1.ResourceRequirements{Requests: list(c.Requests), Limits: list(c.Limits)}
		}
	}

	return targetsnapshot.TemplateSize(spec, size)
}
