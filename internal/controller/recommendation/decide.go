// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/history"
	"crane.io/crane/internal/workload"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/resource"
)

// proposal is what a round wants to write for one target.
type proposal struct {
	id     identity
	target workload.Workload
	// old is the Recommendation that there is, nil where there is none yet.
	old  *analysisv1alpha1.Recommendation
	plan resource.Plan
	// content is what the status shall say; where the plan has no number, the last one that there was is kept.
	content analysisv1alpha1.RecommendationContent
	// savings is what it is worth, nil where that cannot be told.
	savings *analysisv1alpha1.Savings
	message string
}

// observe reads the world: targets, Recommendations, and the use of what this round has not written yet.
func (r *RuleReconciler) observe(ctx context.Context, rd *round) *outcome {
	var err error
	if rd.existing, rd.surplus, err = existing(ctx, r.Client, rd.rule.UID); err != nil {
		return &outcome{condition: notReady(reasonReadFailed, err.Error()), retry: true}
	}
	if rd.run == nil {
		return nil // A rule without recommenders evaluates nothing.
	}
	if rd.selection, err = r.selectTargets(ctx, rd.rule); err != nil {
		return &outcome{condition: notReady(reasonReadFailed, err.Error()), retry: true}
	}
	rd.tally.cooldown = rd.run.cooldown
	for _, w := range rd.selection.targets {
		if !rd.tally.takes(rd, w) {
			continue
		}
		old := rd.existing[identityOf(w.Ref, string(analysisv1alpha1.AnalysisTypeResource))]
		if old == nil || !writtenBy(old, rd.number) {
			rd.pending = append(rd.pending, w)
		}
	}
	reading, cancel := context.WithTimeout(ctx, r.HistoryTimeout)
	defer cancel()
	// Samples of the running minute are not complete.
	end := rd.now.Truncate(time.Minute)
	limits, err := r.constraints(ctx, rd)
	if err != nil {
		return &outcome{condition: notReady(reasonReadFailed, err.Error()), retry: true}
	}
	rd.usage, err = history.Collect(reading, r.History, history.Request{
		Workloads: rd.pending, End: end, Length: rd.run.window(), NodeGroups: limits.Nodes.Of,
	})
	if err != nil {
		return &outcome{condition: notReady(reasonSourceFailed, err.Error()), retry: true}
	}
	rd.usage.Constrain(limits)
	rd.prices = r.prices(ctx, rd)
	return nil
}

// constraints reads nodes and autoscalers once for all targets of a round. A round must not go on without: a request that
// moves alone changes what an autoscaler does.
func (r *RuleReconciler) constraints(ctx context.Context, rd *round) (workload.Constraints, error) {
	if len(rd.pending) == 0 {
		return workload.Constraints{}, nil
	}
	listing, cancel := context.WithTimeout(ctx, r.ListTimeout)
	defer cancel()
	limits, err := r.Lister.Constraints(listing, nil)
	if err != nil {
		return workload.Constraints{}, fmt.Errorf("reading what the cluster sets to sizes: %w", err)
	}
	return limits, nil
}

// writtenBy tells whether a round has written all of a Recommendation. The annotation goes out with or after the
// status of an object that was there, and before that of a new one, whose conditions are then still empty.
func writtenBy(rec *analysisv1alpha1.Recommendation, number int32) bool {
	return rec.Annotations[analysisv1alpha1.AnnotationRunNumber] == strconv.Itoa(int(number)) && len(rec.Status.Conditions) > 0
}

// decide makes a proposal of each pending target. It changes nothing.
func (r *RuleReconciler) decide(_ context.Context, rd *round) *outcome {
	for _, w := range rd.pending {
		id := identityOf(w.Ref, string(analysisv1alpha1.AnalysisTypeResource))
		policy, why := rd.run.policies.For(w.Subject())
		in := rd.usage.Resource(w, policy, rd.now)
		in.PolicyWhy = why
		p := proposal{id: id, target: w, old: rd.existing[id], plan: resource.Decide(in)}
		var err error
		if p.content, err = contentOf(p); err != nil {
			rd.problems = append(rd.problems, fmt.Errorf("%s: %w", w.Ref, err))
			continue
		}
		p.savings = rd.prices.savingsOf(p)
		p.message = analysisv1alpha1.MessageSuccess
		if p.plan.State != recommend.Ready {
			p.message = p.plan.Description
		}
		rd.proposals = append(rd.proposals, p)
	}
	return nil
}

// contentOf writes a plan in the formats of a Recommendation's status.
func contentOf(p proposal) (analysisv1alpha1.RecommendationContent, error) {
	ref := targetRef(p.target)
	content := analysisv1alpha1.RecommendationContent{TargetRef: &ref, Description: p.plan.Description}
	if p.plan.State != recommend.Ready {
		if p.old != nil && p.old.Status.RecommendedValue != "" {
			kept := p.old.Status.RecommendationContent
			kept.Description = p.plan.Description + " The last recommendation is kept."
			return kept, nil
		}
		return content, nil
	}
	current, recommended := changesOf(p.target, p.plan)
	var err error
	if content.CurrentInfo, err = patchOf(p.target.Kind, current); err != nil {
		return content, err
	}
	if content.RecommendedInfo, err = patchOf(p.target.Kind, recommended); err != nil {
		return content, err
	}
	if content.RecommendedValue, err = valueOf(recommended); err != nil {
		return content, err
	}
	content.Action = analysisv1alpha1.Action(p.plan.Action)
	return content, nil
}

// conditionsOf says in conditions what became of a target.
func conditionsOf(p proposal) []state {
	ready := state{
		kind: analysisv1alpha1.ConditionReady, ok: true,
		reason: analysisv1alpha1.ReasonRecommendationReady, message: "The description says what should change and why.",
	}
	learning := state{kind: conditionLearning, ok: p.plan.Incomplete, reason: reasonLearning, message: p.plan.Description}
	failed := state{kind: conditionFailed, reason: reasonEvaluated, message: "The last evaluation succeeded."}
	switch p.plan.State {
	case recommend.Ready:
	case recommend.Learning:
		ready.ok, ready.reason, ready.message = false, reasonLearning, p.plan.Description
	case recommend.NoData:
		ready.ok, ready.reason, ready.message = false, reasonNoUsage, p.plan.Description
		learning.ok = false
		failed.ok, failed.reason, failed.message = true, reasonNoUsage, p.plan.Description
	}
	if !learning.ok {
		learning.reason, learning.message = reasonLearned, "Every container has a number."
		if p.plan.State == recommend.NoData {
			learning.reason, learning.message = reasonNoUsage, "There is no use to learn from."
		}
	}
	return []state{ready, learning, failed}
}

// annotationsOf are the annotations of a Recommendation after this round.
func annotationsOf(rd *round, p proposal) map[string]string {
	return map[string]string{
		analysisv1alpha1.AnnotationRunNumber:     strconv.Itoa(int(rd.number)),
		analysisv1alpha1.AnnotationLastStartTime: rd.now.UTC().Format(analysisv1alpha1.LastStartTimeLayout),
		analysisv1alpha1.AnnotationMessage:       p.message,
	}
}

// sameTarget tells whether two references mean the same object of the same version.
func sameTarget(a, b corev1.ObjectReference) bool {
	type fields struct {
		apiVersion, kind, namespace, name string
		uid                               types.UID
	}
	return fields{a.APIVersion, a.Kind, a.Namespace, a.Name, a.UID} == fields{b.APIVersion, b.Kind, b.Namespace, b.Name, b.UID}
}
