// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
)

// autoscalerKind is the kind of the autoscalers, in references to them.
const autoscalerKind = "EffectiveVerticalPodAutoscaler"

// apply writes a plan down. The status goes first: a change that is written down as made and was not only comes later, while
// one that was made and is not written down would not count for its window.
func (r *Reconciler) apply(ctx context.Context, s *autoscalerState, p *plan) error {
	if err := r.updateStatus(ctx, s, p); err != nil {
		return err
	}
	switch p.action {
	case deleteRecommendation:
		return r.deleteRecommendation(ctx, s)
	case writeRecommendation:
		return r.writeRecommendation(ctx, s, p)
	}
	return nil
}

// updateStatus writes the status where it differs.
func (r *Reconciler) updateStatus(ctx context.Context, s *autoscalerState, p *plan) error {
	changed := s.evpa.DeepCopy()
	changed.Status = newStatus(s, p, r.Clock.Now())
	if equality.Semantic.DeepEqual(changed.Status, s.evpa.Status) {
		return nil
	}
	err := r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(s.evpa, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of the vertical autoscaler %s/%s: %w", s.evpa.Namespace, s.evpa.Name, err)
	}
	was := meta.FindStatusCondition(s.evpa.Status.Conditions, autoscalingv1alpha1.ConditionReady)
	is := meta.FindStatusCondition(changed.Status.Conditions, autoscalingv1alpha1.ConditionReady)
	if is != nil && is.Status == metav1.ConditionFalse && (was == nil || was.Status != is.Status || was.Reason != is.Reason) {
		r.Events.Eventf(s.evpa, nil, corev1.EventTypeWarning, is.Reason, "Estimate", "%s", is.Message)
	}
	return nil
}

// recommendationName is the name of an autoscaler's Recommendation. One that is too long is cut and ends in a hash.
func recommendationName(evpa string) string {
	name := "evpa-" + evpa
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	const digits = 10
	sum := sha256.Sum256([]byte(evpa))
	return strings.TrimRight(name[:validation.DNS1123SubdomainMaxLength-digits-1], "-.") + "-" + hex.EncodeToString(sum[:])[:digits]
}

func isOwned(rec *analysisv1alpha1.Recommendation, e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) bool {
	return metav1.IsControlledBy(rec, e)
}

// deleteRecommendation deletes the autoscaler's Recommendation: nothing is to be applied any more, and adoption gives back what it gave.
func (r *Reconciler) deleteRecommendation(ctx context.Context, s *autoscalerState) error {
	if s.recommendation == nil {
		return nil
	}
	err := r.Client.Delete(ctx, s.recommendation, client.Preconditions{UID: &s.recommendation.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting recommendation %s/%s: %w", s.recommendation.Namespace, s.recommendation.Name, err)
	}
	return nil
}

// writeRecommendation brings the autoscaler's Recommendation in line.
func (r *Reconciler) writeRecommendation(ctx context.Context, s *autoscalerState, p *plan) error {
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
func (s *autoscalerState) fillSpec(rec *analysisv1alpha1.Recommendation, p *plan) {
	controller, block := true, false
	rec.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: autoscalerKind, Name: s.evpa.Name, UID: s.evpa.UID,
		Controller: &controller, BlockOwnerDeletion: &block,
	}}
	if p.scalePoint.annotation != "" {
		metav1.SetMetaDataAnnotation(&rec.ObjectMeta, analysisv1alpha1.AnnotationScalePoint, p.scalePoint.annotation)
	} else {
		delete(rec.Annotations, analysisv1alpha1.AnnotationScalePoint)
	}
	rec.Spec.TargetRef = s.targetReference()
	rec.Spec.Type, rec.Spec.AdoptionType = analysisv1alpha1.AnalysisTypeResource, analysisv1alpha1.AdoptionTypeAuto
	rec.Spec.Adoption = &analysisv1alpha1.AdoptionSpec{Reach: adoptionReach(s.mode)}
	if u := s.evpa.Spec.UpdatePolicy; u != nil {
		rec.Spec.Adoption.MinReplicas = u.MinReplicas
	}
}

// fillStatus sets the status.
func (s *autoscalerState) fillStatus(rec *analysisv1alpha1.Recommendation, p *plan, now time.Time) error {
	spec := podSkeleton(s.target)
	value, info, err := targetsnapshot.EncodeSize(s.target.Kind, spec, p.size)
	if err != nil {
		return err
	}
	_, current, err := targetsnapshot.EncodeSize(s.target.Kind, spec, templateSize(s.target, p.size))
	if err != nil {
		return err
	}
	to := &rec.Status
	if to.RecommendedValue != value || to.RecommendedInfo != info {
		at := metav1.NewTime(now)
		to.LastUpdateTime = &at
	}
	to.RecommendedValue, to.RecommendedInfo, to.CurrentInfo = value, info, current
	to.Description, to.Action = p.description, analysisv1alpha1.ActionNone
	if p.changes(s) {
		to.Action = analysisv1alpha1.ActionPatch
	}
	s.setRecommendationConditions(rec, p, now)
	return nil
}

// setRecommendationConditions sets the conditions that are this package's; the others are adoption's.
func (s *autoscalerState) setRecommendationConditions(rec *analysisv1alpha1.Recommendation, p *plan, now time.Time) {
	list := &rec.Status.Conditions
	conditionState{analysisv1alpha1.ConditionReady, true, analysisv1alpha1.ReasonRecommendationReady, "decided by " + autoscalerKind + " " + s.evpa.Name}.set(list, rec.Generation, now)
	if p.estimatorFailures == "" {
		meta.RemoveStatusCondition(list, analysisv1alpha1.ConditionFailed)
	} else {
		conditionState{analysisv1alpha1.ConditionFailed, true, reasonEstimatorFailed, p.estimatorFailures}.set(list, rec.Generation, now)
	}
	if p.scalePoint.foreignScaler == "" {
		meta.RemoveStatusCondition(list, analysisv1alpha1.ConditionApplicable)
	} else {
		conditionState{analysisv1alpha1.ConditionApplicable, false, reasonNotOwned, p.scalePoint.message}.set(list, rec.Generation, now)
	}
}

// podSkeleton is a pod with the containers of a workload and nothing in them: it says which start before the others.
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

// templateSize is what the pod template asks for of what a size speaks of.
func templateSize(w workload.Workload, size adoption.Size) adoption.Size {
	spec := podSkeleton(w)
	list := func(r workload.Resources) corev1.ResourceList {
		out := corev1.ResourceList{}
		for name, v := range map[corev1.ResourceName]int64{corev1.ResourceCPU: int64(r.CPU), corev1.ResourceMemory: int64(r.Memory)} {
			if v > 0 {
				out[name] = newQuantity(resourceOf(name), v)
			}
		}
		return out
	}
	for _, part := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range part {
			c, _ := w.Container(part[i].Name)
			part[i].Resources = corev1.ResourceRequirements{Requests: list(c.Requests), Limits: list(c.Limits)}
		}
	}
	return targetsnapshot.TemplateSize(spec, size)
}
