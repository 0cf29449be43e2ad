// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

// Condition types beside Ready.
const (
	// conditionEstimating is False while an estimator has no answer although it should have one.
	conditionEstimating = "Estimating"
	// conditionApplied is False while the requests are not brought to pods.
	conditionApplied = "Applied"
)

// Reasons.
const (
	reasonReady            = "RecommendationReady"
	reasonNoEstimate       = "NoEstimate"
	reasonInvalidPolicy    = "InvalidPolicy"
	reasonUnknownMode      = "UnknownUpdateMode"
	reasonTargetNotFound   = "TargetNotFound"
	reasonTargetUnreadable = "TargetUnreadable"
	reasonOtherEVPA        = "OtherAutoscalerOfTarget"
	reasonVPAPresent       = "VerticalPodAutoscalerPresent"
	reasonAllAnswer        = "AllAnswer"
	reasonEstimatorFailed  = "EstimatorFailed"
	reasonOff              = "Off"
	reasonPending          = "Pending"
	reasonNotOwned         = "AutoscalerNotOwned"
)

// conditionState is what a condition says.
type conditionState struct {
	kind            string
	ok              bool
	reason, message string
}

// set changes conditions only where something differs; the time of transition moves only with the status.
func (c conditionState) set(conditions *[]metav1.Condition, generation int64, now time.Time) {
	status := metav1.ConditionFalse
	if c.ok {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: c.kind, Status: status, Reason: c.reason, Message: boundedMessage(c.message), ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now),
	})
}

// targetConditions says how it stands with an autoscaler that has a target.
func targetConditions(s *autoscalerState, p *plan) []conditionState {
	return []conditionState{readyCondition(s, p), estimatingCondition(p), appliedCondition(s, p)}
}

func readyCondition(s *autoscalerState, p *plan) conditionState {
	out := conditionState{kind: autoscalingv1alpha1.ConditionReady}
	if s.modeErr != nil {
		out.reason, out.message = reasonUnknownMode, s.modeErr.Error()
		return out
	}
	silent := ""
	for _, one := range p.sizings {
		switch {
		case one.PolicyInvalid:
			out.reason, out.message = reasonInvalidPolicy, string(one.Resource)+" of "+one.container+": "+one.Reason
			return out
		case one.Target > 0:
			out.ok = true
		case silent == "":
			silent = string(one.Resource) + " of " + one.container + ": " + one.Reason
		}
	}
	if out.ok {
		out.reason, out.message = reasonReady, "there is a recommendation"
		if silent != "" {
			out.message += ", but for " + silent
		}
		return out
	}
	out.reason, out.message = reasonNoEstimate, silent
	return out
}

func estimatingCondition(p *plan) conditionState {
	if p.estimatorFailures != "" {
		return conditionState{conditionEstimating, false, reasonEstimatorFailed, p.estimatorFailures}
	}
	return conditionState{conditionEstimating, true, reasonAllAnswer, "every estimator answers"}
}

// appliedCondition says how far the requests have come. What the adoption controller says of the Recommendation is repeated here.
func appliedCondition(s *autoscalerState, p *plan) conditionState {
	out := conditionState{kind: conditionApplied}
	switch {
	case s.modeErr != nil:
		out.reason, out.message = reasonUnknownMode, s.modeErr.Error()
	case s.applyProblem != nil:
		out.reason, out.message = s.applyProblem.reason, s.applyProblem.message
	case s.mode == autoscalingv1alpha1.UpdateModeOff:
		out.reason, out.message = reasonOff, "update mode Off computes, and applies nothing"
	case p.scalePoint.foreignScaler != "":
		out.reason, out.message = reasonNotOwned, p.scalePoint.message
	case s.recommendation == nil:
		return pendingCondition()
	default:
		return adoptedCondition(s.recommendation)
	}
	return out
}

func pendingCondition() conditionState {
	return conditionState{kind: conditionApplied, reason: reasonPending, message: "not taken up by the controller of adoption yet"}
}

func adoptedCondition(rec *analysisv1alpha1.Recommendation) conditionState {
	out := conditionState{kind: conditionApplied}
	if c := meta.FindStatusCondition(rec.Status.Conditions, analysisv1alpha1.ConditionAdopted); c != nil && c.Status == metav1.ConditionFalse {
		out.reason, out.message = c.Reason, c.Message
		return out
	}
	if rec.Status.Adoption == nil {
		return pendingCondition()
	}
	out.ok, out.reason, out.message = true, "Adopted", rec.Status.Adoption.Message
	if phase := rec.Status.Adoption.Phase; phase != "" {
		out.reason = phase
	}
	return out
}
