// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	shared "crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/pkg/adoption"
)

// maxShown bounds the remarks, and the requests of a dry run, in a status.
const maxShown = 20

// recordEvents writes an event for each thing that has happened, on the Recommendation and on the target.
func (r *Reconciler) recordEvents(s *shared.TargetSnapshot, rec *analysisv1alpha1.Recommendation, plan adoption.Plan) {
	// Events that differ in their text alone would be counted as one, and only the first text kept.
	action := fmt.Sprintf("AdoptStep%d", plan.State.Steps)
	for _, n := range plan.Events {
		kind := corev1.EventTypeNormal
		if n.Warning {
			kind = corev1.EventTypeWarning
		}
		r.Metrics.countEvent(n.Reason)
		r.Events.Eventf(s.Identity(), nil, kind, n.Reason, action, "%s", truncate(n.Text))
		if rec != nil {
			r.Events.Eventf(rec, nil, kind, n.Reason, action, "%s", truncate(n.Text))
		}
	}
}

// writeAdoptionStatus brings the status of a Recommendation in line.
func (r *Reconciler) writeAdoptionStatus(ctx context.Context, rec *analysisv1alpha1.Recommendation, plan adoption.Plan, preview []analysisv1alpha1.AdoptionPatch) error {
	status := &analysisv1alpha1.AdoptionStatus{
		Phase: string(plan.State.Phase), Message: truncate(plan.Summary), Steps: int32(min(plan.State.Steps, 1<<30)),
		Remarks: plan.Remarks[:min(len(plan.Remarks), maxShown)], DryRun: preview,
	}
	for i := range status.Remarks {
		status.Remarks[i] = truncate(status.Remarks[i])
	}
	if equality.Semantic.DeepEqual(rec.Status.Adoption, status) {
		return nil
	}
	changed := rec.DeepCopy()
	changed.Status.Adoption = status
	if err := r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(rec, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}
	rec.Status.Adoption, rec.ResourceVersion = status, changed.ResourceVersion
	return nil
}

// previewPlan says in the status what would be sent, and sends nothing. The state, which would be written down first, is left out:
// it has the time in it, and would change the status with every look.
func (r *Reconciler) previewPlan(
	ctx context.Context, s *shared.TargetSnapshot, kind analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation, before adoption.State, plan adoption.Plan,
) (outcome, error) {
	v := outcome{requeueAfter: max(plan.RequeueAfter, r.Settings.Policy.PollInterval)}
	if rec == nil {
		return v, nil
	}
	same := plan
	same.State = before
	requests, err := s.Requests(kind, before, same)
	if err != nil {
		return v, err
	}
	var all []analysisv1alpha1.AdoptionPatch
	for _, request := range requests[:min(len(requests), maxShown)] {
		raw, err := json.Marshal(request.Body)
		if err != nil {
			return v, fmt.Errorf("encoding a patch of %s: %w", request, err)
		}
		all = append(all, analysisv1alpha1.AdoptionPatch{Object: request.String(), Patch: string(raw)})
	}
	plan.State = adoption.State{Phase: before.Phase}
	plan.Summary = "dry run: " + plan.Summary
	return v, r.writeAdoptionStatus(ctx, rec, plan, all)
}
