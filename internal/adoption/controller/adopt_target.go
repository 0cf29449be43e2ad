// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	shared "crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/pkg/adoption"
)

// adoptTarget goes on with what Auto asks for of one target and type; rec is nil where nothing asks for it any more.
func (r *Reconciler) adoptTarget(
	ctx context.Context, key targetindex.Key, kind analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation,
) (outcome, error) {
	watched, ok := shared.SupportedKind(key.Group, key.Kind)
	if !ok {
		return outcome{reason: reasonNotSupported, message: fmt.Sprintf("Pods of a %s are not adopted; the value is in the annotation.", key.Kind)}, nil
	}
	look := shared.SnapshotReader{Live: r.Live, Kills: r.Kills, Throttling: r.Throttling}
	scene, err := look.Read(ctx, watched, client.ObjectKey{Namespace: key.Namespace, Name: key.Name})
	switch {
	case apierrors.IsNotFound(err) || err != nil && meta.IsNoMatchError(err):
		r.forgetBudget(key, kind)
		return outcome{}, nil // annotate has said so.
	case err != nil:
		return outcome{}, err
	}
	state, err := shared.ReadState(scene.Object, kind)
	if err != nil {
		return outcome{reason: reasonUnreadableState, message: fmt.Sprintf("annotation %s of the target: %v; nothing is done until it is deleted or mended", shared.StateAnnotations()[kind], err)}, nil
	}
	if rec == nil && state.Phase == adoption.Untouched {
		r.forgetBudget(key, kind)
		return outcome{}, nil
	}
	in, bar, err := look.DecisionInput(ctx, scene, shared.DecisionRequest{
		Type: kind, Recommendation: rec, State: state, Policy: r.Settings.Policy, Now: r.Clock.Now(),
	})
	if err != nil {
		return outcome{}, err
	}
	if err := r.loadBudgets(ctx); err != nil {
		return outcome{}, err
	}
	r.refusals.mark(in.Pods, in.Now)
	plan := r.decide(scene.BudgetKey(kind), in)
	var v outcome
	if r.Settings.DryRun {
		v, err = r.previewPlan(ctx, scene, kind, rec, state, plan)
	} else {
		v, err = r.execute(ctx, scene, kind, rec, state, plan)
	}
	if v.reason == "" {
		v.reason, v.message = bar.Reason, bar.Message
	}
	return v, err
}

// decide asks what to do, with the book of the cluster in hand, and enters the answer.
func (r *Reconciler) decide(entry adoption.Key, in adoption.Input) adoption.Plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	in.Allowance = r.budgets.AllowanceFor(entry, in.Policy, in.Now)
	in.Allowance.WindowClosed = r.Settings.WindowClosed(in.Now)
	plan := adoption.Decide(in)
	if !r.Settings.DryRun {
		r.budgets.Set(entry, plan.State)
	}
	return plan
}

// forgetBudget drops a target that is gone, or of which nothing is adopted, from the book.
func (r *Reconciler) forgetBudget(key targetindex.Key, kind analysisv1alpha1.AnalysisType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.budgets.Remove(adoption.Key{Namespace: key.Namespace, Kind: key.Kind, Name: key.Name, Type: string(kind)})
}
