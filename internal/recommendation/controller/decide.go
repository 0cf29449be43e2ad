// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
)

// proposal is what a batch writes for one task.
type proposal struct {
	task
	decision
	// content is the new content of the status; if the plan has no value, the previous value is kept.
	content analysisv1alpha1.RecommendationContent
	message string
	// err is the reason why the target could not be evaluated.
	err error
}

// gather lets each recommender read the data for its tasks. Its errors are a batchError.
func (r *RuleReconciler) gather(ctx context.Context, b batch, tasks []task) (*runData, error) {
	data := r.newRunData(b.now, tasks)
	for _, recommender := range b.recommenders {
		var targets []workload.Workload
		for _, t := range tasks {
			if t.recommender == recommender {
				targets = append(targets, t.target)
			}
		}

		if len(targets) == 0 {
			continue
		}

		if err := recommender.gather(ctx, data, targets); err != nil {
			reason := reasonReadFailed
			if source := (*sourceError)(nil); errors.As(err, &source) {
				reason = reasonSourceFailed
			}

			return nil, batchError{reason, true, fmt.Errorf("recommender %s: %w", recommender.name, err)}
		}
	}

	return data, nil
}

// propose evaluates a task. The proposal for an unreadable target has no plan.
func (t task) propose(data *runData, unreadable error) proposal {
	p := proposal{task: t, message: analysisv1alpha1.MessageSuccess, err: unreadable}
	if p.err == nil {
		p.decision, p.err = t.recommender.decide(data, t.target)
	}

	if p.err != nil {
		p.decision = decision{plan: recommend.Plan{
			State: recommend.Refused, Reason: reasonUnreadable, Description: "The target could not be evaluated: " + metrics.PublicMessage(p.err) + ".",
		}}
	}

	if p.plan.State != recommend.Ready {
		p.message = p.plan.Description
	}

	p.content, p.savings = p.status()
	return p
}

// status returns the content and the savings of the status of the Recommendation.
func (p *proposal) status() (analysisv1alpha1.RecommendationContent, *analysisv1alpha1.Savings) {
	ref := targetRef(p.target)
	content := analysisv1alpha1.RecommendationContent{TargetRef: &ref, Description: p.plan.Explain()}
	if p.plan.State != recommend.Ready {
		// A value that was computed once stays applied while there is no new one.
		if p.existing != nil && p.existing.Status.Action != "" {
			previous := p.existing.Status.RecommendationContent
			previous.Description = p.plan.Explain() + " The last recommendation is kept."
			return previous, p.existing.Status.Savings
		}

		return content, p.savings
	}

	if p.appliesTo != nil {
		content.TargetRef = p.appliesTo
	}

	content.CurrentInfo = p.current
	content.RecommendedInfo = p.recommended
	content.RecommendedValue = p.value

	content.Action = analysisv1alpha1.Action(p.plan.Action)
	content.Change = formatChange(content)
	if p.pricesUnknown && p.existing != nil {
		return content, p.existing.Status.Savings
	}

	return content, p.savings
}

// conditionsOf returns the conditions of a Recommendation except Applicable, which is set only while it is False.
func conditionsOf(p proposal) []condition {
	ready := condition{
		conditionType: analysisv1alpha1.ConditionReady,
		status:        true,
		reason:        analysisv1alpha1.ReasonRecommendationReady,
		message:       "The recommended change and its reasons are in status.description.",
	}

	learning := condition{
		conditionType: conditionLearning,
		status:        p.plan.Incomplete,
		reason:        reasonLearning,
		message:       p.plan.Description,
	}

	failed := condition{conditionType: conditionFailed, reason: reasonEvaluated, message: "The last evaluation succeeded."}
	because := p.plan.Reason
	switch p.plan.State {
	case recommend.Ready, recommend.Clear:

	case recommend.Learning:
		ready.status = false
		ready.reason = reasonLearning
		ready.message = p.plan.Description
		learning.status = true

	case recommend.NoData, recommend.Refused:
		if because == "" {
			because = map[recommend.State]string{recommend.NoData: reasonNoUsage, recommend.Refused: reasonTargetRefused}[p.plan.State]
		}

		ready.status = false
		ready.reason = because
		ready.message = p.plan.Description
		learning.status = false
		failed.status = true
		failed.reason = because
		failed.message = p.plan.Description
	}

	if !learning.status {
		learning.reason = reasonLearned
		learning.message = "The target has enough history."
		if failed.status {
			learning.reason = because
			learning.message = "No history of this target was read."
		}
	}

	return []condition{ready, learning, failed}
}

// annotationsOf returns the annotations of a Recommendation after a batch.
func annotationsOf(b batch, proposal *proposal) map[string]string {
	out := map[string]string{
		analysisv1alpha1.AnnotationRunNumber:      strconv.Itoa(int(b.number)),
		analysisv1alpha1.AnnotationLastStartTime:  b.now.UTC().Format(analysisv1alpha1.LastStartTimeLayout),
		analysisv1alpha1.AnnotationMessage:        proposal.message,
		analysisv1alpha1.AnnotationEvaluatedRound: runMark(b.rule.Generation, b.number),
	}

	maps.Copy(out, proposal.annotations)
	return out
}
