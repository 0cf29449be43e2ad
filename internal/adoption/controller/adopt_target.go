// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize/calibrate"
)

// adoptTarget decides and carries out the next change of one target and type. rec is nil when adoption was switched off.
func (r *Reconciler) adoptTarget(
	ctx context.Context, key targetindex.Key, kind analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation,
) (outcome, error) {
	kindOfTarget, ok := targetKind(r.Client.RESTMapper(), key, kind, rec)
	if !ok {
		return outcome{reason: reasonNotSupported, message: fmt.Sprintf("Pods of a %s are not adopted; the value is in the annotation.", key.Kind)}, nil
	}

	reader := targetsnapshot.SnapshotReader{Live: r.Live, Kills: r.Kills, Throttling: r.Throttling, Limits: r.Client, Pods: r.Pods, VPAs: r.VPAs}
	target, err := reader.Read(ctx, kindOfTarget, client.ObjectKey{Namespace: key.Namespace, Name: key.Name})
	switch {
	case apierrors.IsNotFound(err) || err != nil && meta.IsNoMatchError(err):
		r.forgetBudget(key, kind)
		return outcome{}, nil // annotateTarget reports it.
	case apierrors.IsForbidden(err):
		return forbiddenKind(key, err), nil
	case err != nil:
		return outcome{}, err
	}

	state, invalid := targetsnapshot.ReadState(target.Object, kind)
	if invalid != nil {
		return outcome{reason: reasonUnreadableState, message: fmt.Sprintf("Annotation %s of the target: %v. Correct or delete it; until then nothing is changed.",
			targetsnapshot.StateAnnotations()[kind], invalid)}, nil
	}

	if rec == nil && state.Phase == adoption.Untouched {
		r.forgetBudget(key, kind)
		return outcome{}, nil
	}

	in, block, err := reader.DecisionInput(ctx, target, targetsnapshot.DecisionRequest{
		Type:           kind,
		Recommendation: rec,
		State:          state,
		Policy:         r.Settings.Policy,
		Now:            r.Clock.Now(),
	})
	if err != nil {
		return outcome{}, err
	}

	if err := r.loadBudgets(ctx); err != nil {
		return outcome{}, err
	}

	in.Pods = r.refusals.mark(in.Pods, in.Now)
	if kind == analysisv1alpha1.AnalysisTypeResource {
		addDemands(ctx, reader, target, r.Reactor.demandsOf(key, rec), &in)
	}

	plan := reader.Decide(ctx, target, in, func(in adoption.Input) adoption.Plan { return r.decide(target.BudgetKey(kind), in) })
	o, err := r.execute(ctx, execution{
		target: target,
		kind:   kind,
		rec:    rec,
		before: state,
		plan:   plan,
	})

	if !target.Watched() {
		// Its changes are not reported.
		o.requeueAfter = earliest(o.requeueAfter, r.Settings.Policy.Settle)
		if apierrors.IsForbidden(err) {
			return forbiddenKind(key, err), nil
		}
	}

	// A CronJob reports no pod that was not created.
	if _, isCronJob := target.Object.(*batchv1.CronJob); isCronJob && plan.State.Phase != adoption.Untouched && targetsnapshot.LacksPods(target.Object) {
		o.requeueAfter = earliest(o.requeueAfter, r.Settings.Policy.PollInterval)
	}

	if o.reason == "" {
		o.reason, o.message = block.Reason, block.Message
	}

	return o, err
}

// addDemands adds demands of the target's pods, and the room on their nodes, to the input of a decision.
func addDemands(ctx context.Context, reader targetsnapshot.SnapshotReader, target *targetsnapshot.TargetSnapshot, demands []adoption.Demand, in *adoption.Input) {
	if len(demands) == 0 {
		return
	}

	in.Demands = demands
	in.Reaction = *calibrate.DefaultSettings().Reaction
	if err := reader.ReadRoom(ctx, target, in.Demands, in.Pods); err != nil { // Adoption goes on; the next reading tries again.
		ctrl.LoggerFrom(ctx).WithName("adoption").Info("no pod is raised: the room on its node is not known", "target", target.String(), "reason", err.Error())
		in.Demands = nil
	}
}

// targetKind returns the kind of a target with a new object; ok is false if its pods are not adopted for a type of analysis.
func targetKind(
	mapper meta.RESTMapper, key targetindex.Key, analysisType analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation,
) (kind workload.WatchedKind, ok bool) {
	if kind, ok = targetsnapshot.SupportedKind(key.Group, key.Kind); ok || analysisType != analysisv1alpha1.AnalysisTypeResource {
		return kind, ok
	}

	if rec != nil {
		return targetsnapshot.AdoptableKind(workload.KindOf(rec.Spec.TargetRef.APIVersion, rec.Spec.TargetRef.Kind))
	}

	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: key.Group, Kind: key.Kind})
	if err != nil {
		return kind, false
	}

	return targetsnapshot.AdoptableKind(mapping.GroupVersionKind)
}

// forbiddenKind is the outcome for a target of a kind that craned has no right for: only an administrator can change this.
func forbiddenKind(key targetindex.Key, err error) outcome {
	return outcome{
		reason:       reasonNotSupported,
		message:      fmt.Sprintf("Pods of this %s are not adopted: %v. Grant craned the verbs get and patch on its kind.", key.Kind, err),
		requeueAfter: retryRefused,
	}
}

// decide returns the plan within the budgets of the cluster, and reserves what it spends.
func (r *Reconciler) decide(key adoption.Key, in adoption.Input) adoption.Plan {
	r.mu.Lock()
	defer r.mu.Unlock()

	in.Allowance = r.budgets.AllowanceFor(key, in.Policy, in.Now)
	in.Allowance.WindowClosed = r.Settings.WindowClosed(in.Now)

	plan := adoption.Decide(in)
	if !r.Settings.DryRun {
		r.budgets.Set(key, plan.State)
	}

	return plan
}

// forgetBudget removes a target from the budgets.
func (r *Reconciler) forgetBudget(key targetindex.Key, kind analysisv1alpha1.AnalysisType) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.budgets.Remove(adoption.Key{
		Namespace: key.Namespace,
		Kind:      key.Kind,
		Name:      key.Name,
		Type:      string(kind),
	})
}
