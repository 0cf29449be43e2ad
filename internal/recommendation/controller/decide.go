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

// find reads the Recommendations and the targets, and takes what this pass evaluates.
func (r *RuleReconciler) find(ctx context.Context, rd *round) *outcome {
	var err error
	if rd.existing, rd.surplus, err = existing(ctx, r.Client, rd.rule); err != nil {
		return &outcome{condition: notReady(reasonReadFailed, err.Error()), retry: true}
	}
	rd.progress = r.rounds.of(rd.rule, rd.number)
	if rd.settled && !rd.asked() && len(rd.progress.failed) == 0 {
		r.rounds.end(rd.rule.Name)
		return &outcome{wait: rd.wait}
	}
	if len(rd.runs) == 0 {
		return nil // A rule without recommenders evaluates nothing.
	}
	if rd.selection, err = r.selectTargets(ctx, rd.rule); err != nil {
		return &outcome{condition: notReady(reasonReadFailed, err.Error()), retry: true}
	}
	rd.tasks, rd.left = nextPass(rd.pending(), max(1, r.PassSize))
	return nil
}

// asked tells whether somebody wants to see a Recommendation of the rule evaluated.
func (rd *round) asked() bool {
	for _, rec := range rd.existing {
		if askedFor(rec) {
			return true
		}
	}
	return false
}

// pending are the tasks that the round has still to do.
func (rd *round) pending() []task {
	var out []task
	there := map[identity]bool{}
	for _, w := range rd.selection.targets {
		looked := false
		for _, run := range rd.runs {
			if !run.looksAt(w) {
				continue
			}
			looked = true
			t := task{id: identityOf(w.Ref, run.name), run: run, target: w}
			t.old = rd.existing[t.id]
			t.asked = t.old != nil && askedFor(t.old)
			there[t.id] = rd.tally.takes(rd, run, w)
			if there[t.id] && rd.wants(t) {
				out = append(out, t)
			}
		}
		if !looked {
			rd.tally.unsuited++
		}
	}
	rd.progress.forget(func(id identity) bool { return !there[id] })
	return out
}

// wants tells whether a task is this round's and not done yet.
func (rd *round) wants(t task) bool {
	_, failed := rd.progress.failed[t.id]
	switch {
	case !rd.progress.ready(t.id, rd.now):
		return false
	case failed: // Why is in its status, which makes it look done.
		return true
	case rd.settled:
		return t.asked
	case rd.follows:
		return t.asked || t.old == nil && t.target.Created.Add(t.run.cooldown).After(rd.rule.Status.LastUpdateTime.Time)
	}
	return t.asked || t.old == nil || !writtenIn(t.old, rd.rule.Generation, rd.number)
}

// gather lets each recommender read what it needs for its targets.
func (r *RuleReconciler) gather(ctx context.Context, rd *round) *outcome {
	rd.world = r.newWorld(rd.now, rd.readable())
	for _, run := range rd.runs {
		var all []workload.Workload
		for _, t := range rd.readable() {
			if t.run == run {
				all = append(all, t.target)
			}
		}
		if len(all) == 0 {
			continue
		}
		if err := run.gather(ctx, rd.world, all); err != nil {
			reason := reasonReadFailed
			if of := (*sourceError)(nil); errors.As(err, &of) {
				reason = reasonSourceFailed
			}
			return &outcome{condition: notReady(reason, fmt.Sprintf("recommender %s: %v", run.name, err)), retry: true}
		}
	}
	return nil
}

// readable are the tasks whose targets could be read.
func (rd *round) readable() []task {
	if len(rd.selection.broken) == 0 {
		return rd.tasks
	}
	return slices.DeleteFunc(slices.Clone(rd.tasks), func(t task) bool { return rd.brokenTarget(t) != nil })
}

func (rd *round) brokenTarget(t task) error {
	id := t.id
	id.recommender = ""
	return rd.selection.broken[id]
}

// decide makes a proposal of each task. It changes nothing.
func (r *RuleReconciler) decide(_ context.Context, rd *round) *outcome {
	for _, run := range rd.runs { // One recommender after the other: those at the end decide with what others decided.
		for _, t := range rd.tasks {
			if t.run == run {
				rd.proposals = append(rd.proposals, rd.propose(t))
			}
		}
	}
	rd.world = nil // What was read is no longer needed, and is most of what a pass holds.
	return nil
}

func (rd *round) propose(t task) proposal {
	p := proposal{task: t, message: analysisv1alpha1.MessageSuccess}
	if p.err = rd.brokenTarget(t); p.err == nil {
		p.decision, p.err = t.run.decide(rd.world, t.target)
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
		if p.old != nil && p.old.Status.Action != "" {
			kept := p.old.Status.RecommendationContent
			kept.Description = p.plan.Explain() + " The last recommendation is kept."
			p.savings = p.old.Status.Savings
			return kept
		}
		return content
	}
	if p.unpriced && p.old != nil {
		p.savings = p.old.Status.Savings
	}
	if p.on != nil {
		content.TargetRef = p.on
	}
	content.CurrentInfo, content.RecommendedInfo, content.RecommendedValue = p.current, p.recommended, p.value
	content.Action = analysisv1alpha1.Action(p.plan.Action)
	return content
}

// conditionsOf says in conditions what became of a target. Applicable is there only where it is False.
func conditionsOf(p proposal) []state {
	ready := state{
		kind: analysisv1alpha1.ConditionReady, ok: true,
		reason: analysisv1alpha1.ReasonRecommendationReady, message: "The description says what should change and why.",
	}
	learning := state{kind: conditionLearning, ok: p.plan.Incomplete, reason: reasonLearning, message: p.plan.Description}
	failed := state{kind: conditionFailed, reason: reasonEvaluated, message: "The last evaluation succeeded."}
	because := p.plan.Reason
	switch p.plan.State {
	case recommend.Ready, recommend.Clear:
	case recommend.Learning:
		ready.ok, ready.reason, ready.message = false, reasonLearning, p.plan.Description
		learning.ok = true
	case recommend.NoData, recommend.Refused:
		if because == "" {
			because = map[recommend.State]string{recommend.NoData: reasonNoUsage, recommend.Refused: reasonRefused}[p.plan.State]
		}
		ready.ok, ready.reason, ready.message = false, because, p.plan.Description
		learning.ok = false
		failed.ok, failed.reason, failed.message = true, because, p.plan.Description
	}
	if !learning.ok {
		learning.reason, learning.message = reasonLearned, "Every part of the target has a value."
		if failed.ok {
			learning.reason, learning.message = because, "There is nothing to learn from."
		}
	}
	return []state{ready, learning, failed}
}

// annotationsOf are the annotations of a Recommendation after this round.
func annotationsOf(rd *round, p proposal) map[string]string {
	out := map[string]string{
		analysisv1alpha1.AnnotationRunNumber:      strconv.Itoa(int(rd.number)),
		analysisv1alpha1.AnnotationLastStartTime:  rd.now.UTC().Format(analysisv1alpha1.LastStartTimeLayout),
		analysisv1alpha1.AnnotationMessage:        p.message,
		analysisv1alpha1.AnnotationEvaluatedRound: roundMark(rd.rule.Generation, rd.number),
	}
	maps.Copy(out, p.annotations)
	return out
}

// sameTarget tells whether two references mean the same object of the same version.
func sameTarget(a, b corev1.ObjectReference) bool {
	type fields struct {
		apiVersion, kind, namespace, name string
		uid                               types.UID
	}
	return fields{a.APIVersion, a.Kind, a.Namespace, a.Name, a.UID} == fields{b.APIVersion, b.Kind, b.Namespace, b.Name, b.UID}
}
