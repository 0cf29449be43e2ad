// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend"
)

// proposal is what a pass wants to write for one task.
type proposal struct {
	task
	decision
	// content is what the status shall say; where the plan has no value, the last one that there was is kept.
	content analysisv1alpha1.RecommendationContent
	message string
	// err is why the target could not be evaluated.
	err error
}

// loadTargets reads the Recommendations and the targets, and takes what this pass evaluates.
func (r *RuleReconciler) loadTargets(ctx context.Context, rd *pass) *outcome {
	var err error
	if rd.existing, rd.duplicates, err = existingRecommendations(ctx, r.Client, rd.rule); err != nil {
		return &outcome{condition: notReady(reasonReadFailed, err.Error()), retry: true}
	}
	rd.progress = r.progress.get(rd.rule, rd.number)
	if rd.upToDate && !rd.anyRequested() && len(rd.progress.failed) == 0 {
		r.progress.forget(rd.rule.Name)
		return &outcome{wait: rd.wait}
	}
	if len(rd.recommenders) == 0 {
		return nil // A rule without recommenders evaluates nothing.
	}
	if rd.selection, err = r.selectTargets(ctx, rd.rule); err != nil {
		return &outcome{condition: notReady(reasonReadFailed, err.Error()), retry: true}
	}
	rd.tasks, rd.remaining = splitPass(rd.pendingTasks(), max(1, r.PassSize))
	return nil
}

// anyRequested tells whether somebody wants to see a Recommendation of the rule evaluated.
func (rd *pass) anyRequested() bool {
	for _, rec := range rd.existing {
		if evaluationRequested(rec) {
			return true
		}
	}
	return false
}

// pendingTasks are the tasks that the round has still to do.
func (rd *pass) pendingTasks() []task {
	var out []task
	there := map[identity]bool{}
	for _, w := range rd.selection.targets {
		looked := false
		for _, run := range rd.recommenders {
			if !run.supportsTarget(w) {
				continue
			}
			looked = true
			t := task{id: identityOf(w.Ref, run.name), recommender: run, target: w}
			t.existing = rd.existing[t.id]
			t.requested = t.existing != nil && evaluationRequested(t.existing)
			there[t.id] = rd.stats.count(rd, run, w)
			if there[t.id] && rd.isPending(t) {
				out = append(out, t)
			}
		}
		if !looked {
			rd.stats.unsupported++
		}
	}
	rd.progress.forgetFailures(func(id identity) bool { return !there[id] })
	return out
}

// isPending tells whether a task is this round's and not done yet.
func (rd *pass) isPending(t task) bool {
	_, failed := rd.progress.failed[t.id]
	switch {
	case !rd.progress.isDue(t.id, rd.now):
		return false
	case failed: // Why is in its status, which makes it look done.
		return true
	case rd.upToDate:
		return t.requested
	case rd.catchUp:
		return t.requested || t.existing == nil && t.target.Created.Add(t.recommender.cooldown).After(rd.rule.Status.LastUpdateTime.Time)
	}
	return t.requested || t.existing == nil || !isEvaluatedIn(t.existing, rd.rule.Generation, rd.number)
}

// gather lets each recommender read what it needs for its targets.
func (r *RuleReconciler) gather(ctx context.Context, rd *pass) *outcome {
	rd.data = r.newPassData(rd.now, rd.readableTasks())
	for _, run := range rd.recommenders {
		var all []workload.Workload
		for _, t := range rd.readableTasks() {
			if t.recommender == run {
				all = append(all, t.target)
			}
		}
		if len(all) == 0 {
			continue
		}
		if err := run.gather(ctx, rd.data, all); err != nil {
			reason := reasonReadFailed
			if of := (*sourceError)(nil); errors.As(err, &of) {
				reason = reasonSourceFailed
			}
			return &outcome{condition: notReady(reason, fmt.Sprintf("recommender %s: %v", run.name, err)), retry: true}
		}
	}
	return nil
}

// readableTasks are the tasks whose targets could be read.
func (rd *pass) readableTasks() []task {
	if len(rd.selection.unreadable) == 0 {
		return rd.tasks
	}
	return slices.DeleteFunc(slices.Clone(rd.tasks), func(t task) bool { return rd.targetError(t) != nil })
}

func (rd *pass) targetError(t task) error {
	id := t.id
	id.recommender = ""
	return rd.selection.unreadable[id]
}

// decide makes a proposal of each task. It changes nothing.
func (r *RuleReconciler) decide(_ context.Context, rd *pass) *outcome {
	for _, run := range rd.recommenders { // One recommender after the other: those at the end decide with what others decided.
		for _, t := range rd.tasks {
			if t.recommender == run {
				rd.proposals = append(rd.proposals, rd.propose(t))
			}
		}
	}
	rd.data = nil // What was read is no longer needed, and is most of what a pass holds.
	return nil
}

func (rd *pass) propose(t task) proposal {
	p := proposal{task: t, message: analysisv1alpha1.MessageSuccess}
	if p.err = rd.targetError(t); p.err == nil {
		p.decision, p.err = t.recommender.decide(rd.data, t.target)
	}
	if p.err != nil {
		p.decision = decision{plan: recommend.Plan{
			State: recommend.Refused, Reason: reasonUnreadable, Description: "The target could not be evaluated: " + p.err.Error() + ".",
		}}
	}
	if p.plan.State != recommend.Ready {
		p.message = p.plan.Description
	}
	p.content = p.toContent()
	return p
}

// toContent writes a decision as a Recommendation's status has it.
func (p *proposal) toContent() analysisv1alpha1.RecommendationContent {
	ref := targetRef(p.target)
	content := analysisv1alpha1.RecommendationContent{TargetRef: &ref, Description: p.plan.Explain()}
	if p.plan.State != recommend.Ready {
		if p.existing != nil && p.existing.Status.Action != "" {
			kept := p.existing.Status.RecommendationContent
			kept.Description = p.plan.Explain() + " The last recommendation is kept."
			p.savings = p.existing.Status.Savings
			return kept
		}
		return content
	}
	if p.pricesUnknown && p.existing != nil {
		p.savings = p.existing.Status.Savings
	}
	if p.appliesTo != nil {
		content.TargetRef = p.appliesTo
	}
	content.CurrentInfo, content.RecommendedInfo, content.RecommendedValue = p.current, p.recommended, p.value
	content.Action = analysisv1alpha1.Action(p.plan.Action)
	return content
}

// conditionsOf says in conditions what became of a target. Applicable is there only where it is False.
func conditionsOf(p proposal) []condition {
	ready := condition{
		conditionType: analysisv1alpha1.ConditionReady, status: true,
		reason: analysisv1alpha1.ReasonRecommendationReady, message: "The description says what should change and why.",
	}
	learning := condition{conditionType: conditionLearning, status: p.plan.Incomplete, reason: reasonLearning, message: p.plan.Description}
	failed := condition{conditionType: conditionFailed, reason: reasonEvaluated, message: "The last evaluation succeeded."}
	because := p.plan.Reason
	switch p.plan.State {
	case recommend.Ready, recommend.Clear:
	case recommend.Learning:
		ready.status, ready.reason, ready.message = false, reasonLearning, p.plan.Description
		learning.status = true
	case recommend.NoData, recommend.Refused:
		if because == "" {
			because = map[recommend.State]string{recommend.NoData: reasonNoUsage, recommend.Refused: reasonTargetRefused}[p.plan.State]
		}
		ready.status, ready.reason, ready.message = false, because, p.plan.Description
		learning.status = false
		failed.status, failed.reason, failed.message = true, because, p.plan.Description
	}
	if !learning.status {
		learning.reason, learning.message = reasonLearned, "Every part of the target has a value."
		if failed.status {
			learning.reason, learning.message = because, "There is nothing to learn from."
		}
	}
	return []condition{ready, learning, failed}
}

// annotationsOf are the annotations of a Recommendation after this round.
func annotationsOf(rd *pass, p proposal) map[string]string {
	out := map[string]string{
		analysisv1alpha1.AnnotationRunNumber:      strconv.Itoa(int(rd.number)),
		analysisv1alpha1.AnnotationLastStartTime:  rd.now.UTC().Format(analysisv1alpha1.LastStartTimeLayout),
		analysisv1alpha1.AnnotationMessage:        p.message,
		analysisv1alpha1.AnnotationEvaluatedRound: roundMark(rd.rule.Generation, rd.number),
	}
	maps.Copy(out, p.annotations)
	return out
}

// sameReference tells whether two references mean the same object of the same version.
func sameReference(a, b corev1.ObjectReference) bool {
	type fields struct {
		apiVersion, kind, namespace, name string
		uid                               types.UID
	}
	return fields{a.APIVersion, a.Kind, a.Namespace, a.Name, a.UID} == fields{b.APIVersion, b.Kind, b.Namespace, b.Name, b.UID}
}
