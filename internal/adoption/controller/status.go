// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/component/notification"
	"crane.io/crane/pkg/adoption"
)

// Reasons of the condition Adopted and of events.
const (
	reasonOtherRecommendation = "OtherRecommendationAdopted"
	reasonTargetGone          = "TargetGone"
	reasonPaused              = "Paused"
	reasonForeignTarget       = "TargetOutsideNamespace"

	reasonNotSupported    = targetsnapshot.ReasonNotSupported
	reasonUnreadableState = "UnreadableState"
	reasonStopped         = "Stopped"
)

const (
	// maxMessage bounds a message in bytes; the API accepts 32768.
	maxMessage = 1024
	// maxShown bounds the remarks, and the requests of a dry run, in a status.
	maxShown = 20
)

// outcome is the result of reconciling one Recommendation.
type outcome struct {
	// reason is empty if nothing prevents adoption.
	reason, message string
	// requeueAfter is the time until the next reconciliation; 0 waits for a change.
	requeueAfter time.Duration
	// adopted reports whether status.adoption describes the Recommendation.
	adopted bool
}

// withAdoption returns the outcome of a Recommendation whose value is also applied to pods. The reason of the annotation comes first.
func (o outcome) withAdoption(adopted outcome) outcome {
	adopted.requeueAfter = earliest(adopted.requeueAfter, o.requeueAfter)
	adopted.adopted = true
	if o.reason != "" {
		adopted.reason, adopted.message = o.reason, o.message
	}

	return adopted
}

// earliest returns the shorter of two waits, where 0 is no wait.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}

	return a
}

// reportStatus sets the condition Adopted to False while something prevents adoption, and removes it otherwise, which saves a write
// for most Recommendations. It removes status.adoption of a Recommendation that is not adopted.
func (r *Reconciler) reportStatus(ctx context.Context, rec *analysisv1alpha1.Recommendation, o outcome) error {
	changed := rec.DeepCopy()
	newReason := false
	if o.reason == "" {
		meta.RemoveStatusCondition(&changed.Status.Conditions, analysisv1alpha1.ConditionAdopted)
	} else {
		newReason = meta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
			Type:               analysisv1alpha1.ConditionAdopted,
			Status:             metav1.ConditionFalse,
			Reason:             o.reason,
			Message:            truncate(o.message),
			ObservedGeneration: rec.Generation,
			LastTransitionTime: metav1.NewTime(r.Clock.Now()),
		})
	}

	if !o.adopted {
		changed.Status.Adoption = nil
	}

	if equality.Semantic.DeepEqual(rec.Status, changed.Status) {
		return nil
	}

	if err := r.patchStatus(ctx, rec, changed); err != nil {
		return err
	}

	// Only a new reason is worth an event: messages have numbers that change often.
	if newReason {
		about, note := o.event(rec)
		r.Events.Eventf(about, nil, corev1.EventTypeWarning, o.reason, "Adopt", "%s", note)
	}

	return nil
}

// event returns the object and the text of the event on an outcome. A rule may have many Recommendations whose targets another rule has
// too: the event is then about the rule with the same text each time, so that the recorder counts instead of repeating it.
func (o outcome) event(rec *analysisv1alpha1.Recommendation) (about runtime.Object, note string) {
	if o.reason != reasonOtherRecommendation || len(rec.OwnerReferences) == 0 {
		return rec, truncate(o.message)
	}

	owner := rec.OwnerReferences[0]
	about = &corev1.ObjectReference{
		APIVersion: owner.APIVersion,
		Kind:       owner.Kind,
		Name:       owner.Name,
		UID:        owner.UID,
		Namespace:  ownerNamespace(owner.Kind, rec.Namespace),
	}

	return about, "Recommendations of it are not written on their targets, because others take precedence: the condition Adopted of each names the other."
}

const kindRecommendationRule = "RecommendationRule"

// ownerNamespace returns the namespace of an owner of Recommendations; rules have none.
func ownerNamespace(kind, namespace string) string {
	if kind == kindRecommendationRule {
		return ""
	}

	return namespace
}

// patchStatus writes a changed status. Conditions are one list that the rule controller writes as well, so that the patch names the
// version it is based on.
func (r *Reconciler) patchStatus(ctx context.Context, rec, changed *analysisv1alpha1.Recommendation) error {
	patch := client.MergeFromWithOptions(rec, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, patch)); err != nil {
		return fmt.Errorf("writing the status of recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}

	return nil
}

// writeAdoptionStatus writes status.adoption of a Recommendation.
func (r *Reconciler) writeAdoptionStatus(
	ctx context.Context, rec *analysisv1alpha1.Recommendation, plan adoption.Plan, remarks []string, preview []analysisv1alpha1.AdoptionPatch,
) error {
	status := &analysisv1alpha1.AdoptionStatus{
		Phase:   string(plan.State.Phase),
		Message: truncate(plan.Summary),
		Steps:   int32(min(plan.State.Steps, 1<<30)),
		DryRun:  preview,
	}

	for _, remark := range remarks[:min(len(remarks), maxShown)] {
		status.Remarks = append(status.Remarks, truncate(remark))
	}

	if equality.Semantic.DeepEqual(rec.Status.Adoption, status) {
		return nil
	}

	changed := rec.DeepCopy()
	changed.Status.Adoption = status
	if err := r.patchStatus(ctx, rec, changed); err != nil {
		return err
	}

	rec.Status.Adoption = status
	rec.ResourceVersion = changed.ResourceVersion
	return nil
}

// recordEvents records the events of a plan on the target and on the Recommendation.
func (r *Reconciler) recordEvents(e execution) {
	// Events that differ in their text alone are aggregated, and only the first text is kept.
	action := fmt.Sprintf("AdoptStep%d", e.plan.State.Steps)
	for _, event := range e.plan.Events {
		kind := corev1.EventTypeNormal
		if event.Warning {
			kind = corev1.EventTypeWarning
		}

		r.Metrics.countEvent(event.Reason)
		r.Events.Eventf(e.target.Identity(), nil, kind, event.Reason, action, "%s", truncate(event.Text))

		if e.rec != nil {
			r.Events.Eventf(e.rec, nil, kind, event.Reason, action, "%s", truncate(event.Text))
		}

		if r.Notify != nil && (event.Reason == notification.ReasonRolledBack || event.Reason == notification.ReasonStopped) {
			r.Notify(notification.Event{
				Namespace: e.target.Object.GetNamespace(),
				Time:      r.Clock.Now(),
				Reason:    event.Reason,
				Object:    e.target.String(),
				Message:   event.Text,
			})
		}
	}

	if r.Notify != nil && len(e.plan.Events) > 0 {
		r.notifyBreakers()
	}
}

// notifyBreakers sends an event when a circuit breaker opens. Only a step changes it, besides the time, which closes it.
func (r *Reconciler) notifyBreakers() {
	r.mu.Lock()
	open := r.budgets.OpenBreakers(r.Settings.Policy, r.Clock.Now())
	notified := map[string]bool{}

	var opened []adoption.Breaker
	for _, b := range open {
		notified[b.Namespace] = true

		if !r.breakersNotified[b.Namespace] {
			opened = append(opened, b)
		}
	}

	r.breakersNotified = notified
	r.mu.Unlock()

	// A recipient must not hold up the reconciler, so Notify is called without the lock.
	for _, b := range opened {
		where := "of the cluster"
		if b.Namespace != "" {
			where = "of namespace " + b.Namespace
		}

		r.Notify(notification.Event{Namespace: b.Namespace, Time: r.Clock.Now(), Reason: notification.ReasonBreakerOpen, Message: fmt.Sprintf(
			"%d of %d workloads lowered within %s got worse: no adoption %s starts or continues until they are older; rollbacks continue",
			b.Worse, b.Of, r.Settings.Policy.BreakerWindow, where)})
	}
}

// previewPlan writes the requests of a plan into the status instead of sending them. The request that stores the state is left out,
// because its times would change the status with every decision.
func (r *Reconciler) previewPlan(ctx context.Context, e execution) (outcome, error) {
	o := outcome{requeueAfter: max(e.plan.RequeueAfter, r.Settings.Policy.PollInterval)}
	if e.rec == nil {
		return o, nil
	}

	// A dry run stores no state, so the requests are those of the plan without its state.
	plan := e.plan
	plan.State = e.before
	requests, err := e.target.Requests(e.kind, e.before, plan)
	if err != nil {
		return o, err
	}

	var patches []analysisv1alpha1.AdoptionPatch
	for _, request := range requests[:min(len(requests), maxShown)] {
		raw, err := json.Marshal(request.Body)
		if err != nil {
			return o, fmt.Errorf("encoding the patch of %s: %w", request, err)
		}

		patches = append(patches, analysisv1alpha1.AdoptionPatch{Object: request.String(), Patch: string(raw)})
	}

	plan.State = adoption.State{Phase: e.before.Phase}
	plan.Summary = "dry run: " + plan.Summary
	return o, r.writeAdoptionStatus(ctx, e.rec, plan, plan.Remarks, patches)
}

func truncate(text string) string {
	if len(text) <= maxMessage {
		return text
	}

	return strings.ToValidUTF8(text[:maxMessage], "") + " (truncated)"
}
