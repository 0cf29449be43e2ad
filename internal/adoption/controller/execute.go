// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	shared "crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/eviction"
	"crane.io/crane/pkg/adoption"
)

// retryConflict is how soon a look is repeated that somebody else's write overtook.
const retryConflict = time.Second

// execute carries a plan out: it writes the state down, and then does what the state says. Each write names the UID and the
// version that it is meant for; one that somebody overtook is decided anew.
func (r *Reconciler) execute(
	ctx context.Context, s *shared.TargetSnapshot, kind analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation, before adoption.State, plan adoption.Plan,
) (outcome, error) {
	v := outcome{requeueAfter: plan.RequeueAfter}
	begun, err := r.prepare(ctx, s, kind, rec, before, plan)
	if apierrors.IsConflict(err) {
		return outcome{requeueAfter: retryConflict}, nil
	}
	if err != nil || !begun {
		return v, err
	}
	var errs []error
	for _, c := range plan.Resizes {
		errs = append(errs, r.resizePod(ctx, s, kind, c, &plan, &v))
	}
	for _, e := range plan.Evictions {
		errs = append(errs, r.evictPod(ctx, s, e, &plan, &v))
	}
	if plan.Replicas != nil {
		errs = append(errs, r.send(ctx, s, s.ScaleRequest(*plan.Replicas)))
	}
	if plan.Template != nil {
		errs = append(errs, r.send(ctx, s, s.TemplateRequest(kind, plan, before)))
	}
	if rec != nil {
		errs = append(errs, r.writeAdoptionStatus(ctx, rec, plan, nil))
	}
	if plan.State.Phase == adoption.Stopped {
		v.reason, v.message = reasonStopped, plan.State.Reason
	}
	for _, err := range errs {
		if apierrors.IsConflict(err) {
			v.requeueAfter = earliest(v.requeueAfter, retryConflict)
		} else if err != nil && !apierrors.IsNotFound(err) {
			return v, errors.Join(errs...)
		}
	}
	return v, nil
}

// prepare writes down what is about to be done, and moves the targets of the autoscaler: pods whose autoscaler could not be told
// are left as they are. It is false where the target, or its autoscaler, is gone.
func (r *Reconciler) prepare(
	ctx context.Context, s *shared.TargetSnapshot, kind analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation, before adoption.State, plan adoption.Plan,
) (bool, error) {
	state, err := s.StateRequest(kind, before, plan.State)
	if err != nil {
		return false, err
	}
	if state != nil {
		if err := r.send(ctx, s, state); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		r.recordEvents(s, rec, plan) // Once for each step: a look that does not change the state tells nothing.
	}
	if to := s.AutoscalerRequest(plan.Targets); to != nil {
		err := r.send(ctx, s, to)
		if apierrors.IsNotFound(err) {
			return false, nil // Whose it was then is seen in the next look.
		}
		if err != nil {
			if rec != nil && !apierrors.IsConflict(err) {
				plan.Remarks = append(plan.Remarks, fmt.Sprintf("%v; so no pod is changed either", err))
				err = errors.Join(err, r.writeAdoptionStatus(ctx, rec, plan, nil))
			}
			return false, err
		}
	}
	return true, nil
}

// resizePod gives one pod its new size in place; what came of it is added to the plan's remarks and to the verdict.
func (r *Reconciler) resizePod(
	ctx context.Context, s *shared.TargetSnapshot, kind analysisv1alpha1.AnalysisType, c adoption.PodResize, plan *adoption.Plan, v *outcome,
) error {
	request := s.ResizeRequest(kind, c)
	if request == nil {
		return nil
	}
	err := r.send(ctx, s, request)
	switch {
	case err == nil:
		r.Metrics.countResize("resized")
		ctrl.LoggerFrom(ctx).WithName("adoption").Info("Resized", "namespace", s.Object.GetNamespace(), "pod", c.Pod, "from", c.From.String(), "to", c.To.String())
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		r.Metrics.countResize("overtaken")
		v.requeueAfter = earliest(v.requeueAfter, retryConflict)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		r.Metrics.countResize("refused")
		r.refusals.record(c, err, r.Clock.Now())
		v.requeueAfter = r.Settings.Policy.Settle // It is refused again until something changes.
		if plan.State.Reach == adoption.InPlaceOrRecreate {
			v.requeueAfter = r.Settings.Policy.PollInterval // Another way is left.
		}
		plan.Remarks = append(plan.Remarks, fmt.Sprintf("pod %s: %v", c.Pod, err))
		pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: s.Object.GetNamespace(), Name: c.Pod, UID: types.UID(c.UID)}
		r.Events.Eventf(pod, nil, corev1.EventTypeWarning, "AdoptionRefused", "Resize", "%s", truncate(err.Error()))
	default:
		r.Metrics.countResize("failed")
		return err
	}
	return nil
}

// evictPod asks for the eviction of one pod. What disruption budgets refuse is asked for again later.
func (r *Reconciler) evictPod(ctx context.Context, s *shared.TargetSnapshot, e adoption.Eviction, plan *adoption.Plan, v *outcome) error {
	err := r.send(ctx, s, s.EvictionRequest(e))
	_, kept := eviction.BlockedByPDB(err)
	switch {
	case err == nil:
		r.Metrics.countResize("evicted")
		pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: s.Object.GetNamespace(), Name: e.Pod, UID: types.UID(e.UID)}
		r.Events.Eventf(pod, nil, corev1.EventTypeNormal, "AdoptionEvicted", "Evict", "%s", truncate(fmt.Sprintf("evicted to go from %s to %s: %s", e.From, e.To, e.Reason)))
		ctrl.LoggerFrom(ctx).WithName("adoption").Info("Evicted", "namespace", s.Object.GetNamespace(), "pod", e.Pod, "from", e.From.String(), "to", e.To.String())
	case kept:
		r.Metrics.countResize("refused")
		plan.Remarks = append(plan.Remarks, fmt.Sprintf("pod %s: %v", e.Pod, err))
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		r.Metrics.countResize("overtaken")
		v.requeueAfter = earliest(v.requeueAfter, retryConflict)
	default:
		r.Metrics.countResize("failed")
		return err
	}
	return nil
}

// create creates what is a request of its own: an eviction.
func (r *Reconciler) create(ctx context.Context, request *shared.Request) error {
	if err := r.Client.SubResource(request.Subresource).Create(ctx, request.Object.DeepCopy(), request.Body.DeepCopy()); err != nil {
		return fmt.Errorf("creating %s in %s: %w", request, request.Object.GetNamespace(), err)
	}
	return nil
}

// send sends a request. Where it is for the target itself, the next one follows the version that it has made.
func (r *Reconciler) send(ctx context.Context, s *shared.TargetSnapshot, request *shared.Request) error {
	ofTarget := request.Object.GetUID() == s.Object.GetUID()
	if ofTarget {
		request.Body.SetResourceVersion(s.Object.GetResourceVersion())
	}
	raw, err := json.Marshal(request.Body)
	if err != nil {
		return fmt.Errorf("encoding a patch of %s: %w", request, err)
	}
	if request.Type == "" {
		return r.create(ctx, request)
	}
	object, owner := request.Object.DeepCopy(), client.FieldOwner(request.Manager)
	options := []client.PatchOption{owner}
	if request.Type == types.ApplyPatchType {
		options = append(options, client.ForceOwnership)
	}
	if request.Subresource != "" {
		var sub []client.SubResourcePatchOption
		for _, o := range options {
			if of, ok := o.(client.SubResourcePatchOption); ok {
				sub = append(sub, of)
			}
		}
		err = r.Client.SubResource(request.Subresource).Patch(ctx, object, client.RawPatch(request.Type, raw), sub...)
	} else {
		err = r.Client.Patch(ctx, object, client.RawPatch(request.Type, raw), options...)
	}
	if err != nil {
		return fmt.Errorf("patching %s in %s: %w", request, request.Object.GetNamespace(), err)
	}
	if ofTarget && request.Subresource == "" {
		s.Object.SetResourceVersion(object.GetResourceVersion())
	}
	return nil
}
