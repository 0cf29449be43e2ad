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
	reasonForeignVPA       = "VerticalPodAutoscalerPresent"
	reasonAnswering        = "AllAnswer"
	reasonFailing          = "EstimatorFailed"
	reasonOff              = "Off"
	reasonPending          = "Pending"
	reasonNotOwned         = "AutoscalerNotOwned"
)

// state is what a condition says.
type state struct {
	kind            string
	ok              bool
	reason, message string
}

// set changes conditions only where something differs; the time of transition moves only with the status.
func (c state) set(conditions *[]metav1.Condition, generation int64, now time.Time) {
	status := metav1.ConditionFalse
	if c.ok {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: c.kind, Status: status, Reason: c.reason, Message: sentence(c.message), ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now),
	})
}

// conditionsOf says how it stands with an autoscaler that has a target.
func conditionsOf(s *subject, p *plan) []state {
	return []state{ready(s, p), estimating(p), applied(s, p)}
}

func ready(s *subject, p *plan) state {
	out := state{kind: autoscalingv1alpha1.ConditionReady}
	if s.modeErr != nil {
		out.reason, out.message = reasonUnknownMode, s.modeErr.Error()
		return out
	}
	silent := ""
	for _, one := range p.sizings {
		switch {
		case one.Faulty:
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

func estimating(p *plan) state {
	if p.failing != "" {
		return state{conditionEstimating, false, reasonFailing, p.failing}
	}
	return state{conditionEstimating, true, reasonAnswering, "every estimator answers"}
}

// applied says how far the requests have come. What the adoption controller says of the Recommendation is repeated here.
func applied(s *subject, p *plan) state {
	out := state{kind: conditionApplied}
	switch {
	case s.modeErr != nil:
		out.reason, out.message = reasonUnknownMode, s.modeErr.Error()
	case s.barred != nil:
		out.reason, out.message = s.barred.reason, s.barred.message
	case s.mode == autoscalingv1alpha1.UpdateModeOff:
		out.reason, out.message = reasonOff, "update mode Off computes, and applies nothing"
	case p.point.foreign != "":
		out.reason, out.message = reasonNotOwned, p.point.text
	case s.own == nil:
		return pending()
	default:
		return adopted(s.own)
	}
	return out
}

func pending() state {
	return state{kind: conditionApplied, reason: reasonPending, message: "not taken up by the controller of adoption yet"}
}

func adopted(rec *analysisv1alpha1.Recommendation) state {
	out := state{kind: conditionApplied}
	if c := meta.FindStatusCondition(rec.Status.Conditions, analysisv1alpha1.ConditionAdopted); c != nil && c.Status == metav1.ConditionFalse {
		out.reason, out.message = c.Reason, c.Message
		return out
	}
	if rec.Status.Adoption == nil {
		return pending()
	}
	out.ok, out.reason, out.message = true, "Adopted", rec.Status.Adoption.Message
	if phase := rec.Status.Adoption.Phase; phase != "" {
		out.reason = phase
	}
	return out
}
