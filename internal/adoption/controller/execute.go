// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/eviction"
	"crane.io/crane/pkg/adoption"
)

// retryConflict is the wait before a decision is repeated because another client changed an object first.
const retryConflict = time.Second

// execution is a plan for one target together with what it was made from. rec is nil when adoption was switched off.
type execution struct {
	target *targetsnapshot.TargetSnapshot
	kind   analysisv1alpha1.AnalysisType
	rec    *analysisv1alpha1.Recommendation
	before adoption.State
	plan   adoption.Plan
}

// execute carries out a plan: it stores the state, and then sends the requests of the plan. Each names the UID and the version of its
// object; when another client was faster, the decision is repeated.
func (r *Reconciler) execute(ctx context.Context, e execution) (outcome, error) {
	if r.Settings.DryRun {
		return r.previewPlan(ctx, e)
	}

	o := outcome{requeueAfter: e.plan.RequeueAfter}
	started, err := r.prepare(ctx, e)
	if apierrors.IsConflict(err) {
		return outcome{requeueAfter: retryConflict}, nil
	}
	if err != nil || !started {
		return o, err
	}

	// The state is stored, so what follows may fail in part: the next decision compares pods with the state and goes on.
	remarks, wait, errs := r.changePods(ctx, e)
	if e.plan.Replicas != nil {
		errs = append(errs, send(ctx, r.Client, e.target, e.target.ScaleRequest(*e.plan.Replicas)))
	}
	if e.plan.Template != nil {
		errs = append(errs, send(ctx, r.Client, e.target, e.target.TemplateRequest(e.kind, e.plan, e.before)))
	}
	if e.rec != nil {
		errs = append(errs, r.writeAdoptionStatus(ctx, e.rec, e.plan, remarks, nil))
	}

	o.requeueAfter = wait

	if e.plan.State.Phase == adoption.Stopped {
		o.reason = reasonStopped
		o.message = e.plan.State.Reason
	}

	for _, err := range errs {
		if apierrors.IsConflict(err) {
			o.requeueAfter = earliest(o.requeueAfter, retryConflict)
		} else if err != nil && !apierrors.IsNotFound(err) {
			return o, errors.Join(errs...)
		}
	}

	return o, nil
}

// prepare stores the state and adjusts the targets of the autoscaler. Pods are changed only after both. It returns false if the target
// or its autoscaler is gone.
func (r *Reconciler) prepare(ctx context.Context, e execution) (bool, error) {
	state, err := e.target.StateRequest(e.kind, e.before, e.plan.State)
	if err != nil {
		return false, err
	}

	if state != nil {
		if err := send(ctx, r.Client, e.target, state); err != nil {
			return false, client.IgnoreNotFound(err)
		}

		r.recordEvents(e) // Once per step, since a plan without a new state has no events.
	}

	request := e.target.AutoscalerRequest(e.plan.Targets)
	if request == nil {
		return true, nil
	}

	err = send(ctx, r.Client, e.target, request)
	if apierrors.IsNotFound(err) {
		return false, nil // The next decision finds the other autoscaler.
	}

	if err != nil && e.rec != nil && !apierrors.IsConflict(err) {
		remarks := append(slices.Clip(e.plan.Remarks), fmt.Sprintf("%v; so no pod is changed either", err))
		err = errors.Join(err, r.writeAdoptionStatus(ctx, e.rec, e.plan, remarks, nil))
	}

	return err == nil, err
}

// podResult is the result of a resize or eviction that was sent.
type podResult struct {
	remark string
	// retry joins the wait until the next decision, pause replaces it; 0 for none.
	retry, pause time.Duration
}

// changePods sends the resizes and evictions of a plan. It returns the remarks on pods and the wait until the next decision.
func (r *Reconciler) changePods(ctx context.Context, e execution) (remarks []string, wait time.Duration, errs []error) {
	remarks = slices.Clip(e.plan.Remarks)
	wait = e.plan.RequeueAfter
	changed := false
	var pause, retry time.Duration
	collect := func(result podResult, err error) {
		errs = append(errs, err)
		if result.remark != "" {
			remarks = append(remarks, result.remark)
		}
		if result == (podResult{}) && err == nil {
			changed = true
		}
		pause = earliest(pause, result.pause)
		retry = earliest(retry, result.retry)
	}

	for _, resize := range e.plan.Resizes {
		collect(r.resizePod(ctx, e, resize))
	}

	for _, eviction := range e.plan.Evictions {
		collect(r.evictPod(ctx, e, eviction))
	}

	// Where a pod was changed, the others are not kept waiting for a refused one.
	if pause > 0 && !changed {
		wait = pause
	}

	return remarks, earliest(wait, retry), errs
}

// resizePod resizes one pod in place.
func (r *Reconciler) resizePod(ctx context.Context, e execution, resize adoption.PodResize) (podResult, error) {
	request := e.target.ResizeRequest(e.kind, resize)
	if request == nil {
		return podResult{}, nil
	}

	err := send(ctx, r.Client, e.target, request)
	switch {
	case err == nil:
		r.Metrics.countResize("resized")
		logChange(ctx, e, "resized pod", resize.Pod, resize.From, resize.To)
		return podResult{}, nil

	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		r.Metrics.countResize("refused")
		r.refusals.record(resize, err, r.Clock.Now())
		r.Events.Eventf(podReference(e, resize.Pod, resize.UID), nil, corev1.EventTypeWarning, "AdoptionRefused", "Resize", "%s", truncate(err.Error()))

		pause := r.Settings.Policy.Settle // It is refused again until something changes.
		if e.plan.State.Reach == adoption.InPlaceOrRecreate && exceedsNode(err) {
			pause = r.Settings.Policy.PollInterval // The next decision may evict the pod.
		}

		return podResult{remark: fmt.Sprintf("pod %s: %v", resize.Pod, err), pause: pause}, nil
	}

	return r.failedChange(err)
}

// evictPod evicts one pod. An eviction that disruption budgets block is repeated by a later decision.
func (r *Reconciler) evictPod(ctx context.Context, e execution, evicted adoption.Eviction) (podResult, error) {
	err := send(ctx, r.Client, e.target, e.target.EvictionRequest(evicted))
	if err == nil {
		r.Metrics.countResize("evicted")
		text := fmt.Sprintf("evicted to go from %s to %s: %s", evicted.From, evicted.To, evicted.Reason)
		r.Events.Eventf(podReference(e, evicted.Pod, evicted.UID), nil, corev1.EventTypeNormal, "AdoptionEvicted", "Evict", "%s", truncate(text))
		logChange(ctx, e, "evicted pod", evicted.Pod, evicted.From, evicted.To)

		return podResult{}, nil
	}

	if _, blocked := eviction.BlockedByPDB(err); blocked {
		r.Metrics.countResize("refused")
		return podResult{remark: fmt.Sprintf("pod %s: %v", evicted.Pod, err)}, nil
	}

	return r.failedChange(err)
}

// failedChange retries a change of a pod that is gone or was changed by another client, and returns other errors.
func (r *Reconciler) failedChange(err error) (podResult, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		r.Metrics.countResize("overtaken")
		return podResult{retry: retryConflict}, nil
	}

	r.Metrics.countResize("failed")
	return podResult{}, err
}

func logChange(ctx context.Context, e execution, message, pod string, from, to adoption.Size) {
	ctrl.LoggerFrom(ctx).WithName("adoption").Info(message, "namespace", e.target.Object.GetNamespace(), "pod", pod, "from", from.String(), "to", to.String())
}

func podReference(e execution, name, uid string) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Pod",
		Namespace:  e.target.Object.GetNamespace(),
		Name:       name,
		UID:        types.UID(uid),
	}
}

// send sends a request. A request to the target itself updates the version that the next request names.
func send(ctx context.Context, c client.Client, target *targetsnapshot.TargetSnapshot, request *targetsnapshot.Request) error {
	toTarget := request.Object.GetUID() == target.Object.GetUID()
	if toTarget {
		request.Body.SetResourceVersion(target.Object.GetResourceVersion())
	}

	object := request.Object.DeepCopy()
	subresource := c.SubResource(request.Subresource)
	if request.Type == "" {
		if err := subresource.Create(ctx, object, request.Body.DeepCopy()); err != nil {
			return fmt.Errorf("creating %s in %s: %w", request, object.GetNamespace(), err)
		}

		return nil
	}

	raw, err := json.Marshal(request.Body)
	if err != nil {
		return fmt.Errorf("encoding the patch of %s: %w", request, err)
	}

	patch := client.RawPatch(request.Type, raw)
	options := client.PatchOptions{FieldManager: request.Manager}
	if request.Type == types.ApplyPatchType {
		options.Force = new(true)
	}

	if request.Subresource != "" {
		err = subresource.Patch(ctx, object, patch, &client.SubResourcePatchOptions{PatchOptions: options})
	} else {
		err = c.Patch(ctx, object, patch, &options)
	}

	if err != nil {
		return fmt.Errorf("patching %s in %s: %w", request, request.Object.GetNamespace(), err)
	}

	// A later request of the same plan must not conflict with this one.
	if toTarget && request.Subresource == "" {
		target.Object.SetResourceVersion(object.GetResourceVersion())
	}

	return nil
}
