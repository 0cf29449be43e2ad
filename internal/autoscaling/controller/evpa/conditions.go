// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/condition"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
	"crane.io/crane/pkg/vertical"
)

// Condition types beside Ready.
const (
	// conditionEstimating is False while an estimator fails.
	conditionEstimating = "Estimating"
	// conditionApplied is False while the requests are not applied to pods.
	conditionApplied = "Applied"
)

// Reasons of conditions.
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
	reasonHeld             = "RequestsHeld"
)

// targetConditions returns the conditions of an autoscaler that has a target.
func targetConditions(s autoscalerState, sizings []containerSizing, failures string, point scalePoint) []condition.State {
	estimating := condition.State{
		Type:    conditionEstimating,
		OK:      true,
		Reason:  reasonAllAnswer,
		Message: "every estimator has a value",
	}

	if failures != "" {
		estimating = condition.State{Type: conditionEstimating, Reason: reasonEstimatorFailed, Message: failures}
	}

	return []condition.State{readyCondition(s, sizings), estimating, appliedCondition(s, sizings, point)}
}

func readyCondition(s autoscalerState, sizings []containerSizing) condition.State {
	out := condition.State{Type: autoscalingv1alpha1.ConditionReady}
	if s.modeErr != nil {
		out.Reason = reasonUnknownMode
		out.Message = s.modeErr.Error()
		return out
	}

	missing := ""
	for _, sizing := range sizings {
		text := string(sizing.Resource) + " of " + sizing.container + ": " + sizing.Reason
		switch {
		case sizing.PolicyInvalid:
			out.OK = false
			out.Reason = reasonInvalidPolicy
			out.Message = text

			return out

		case sizing.Target > 0:
			out.OK = true
		case missing == "":
			missing = text
		}
	}

	// Some containers may have a recommendation while others still wait for an estimate.
	switch {
	case !out.OK:
		out.Reason = reasonNoEstimate
		out.Message = missing
	case missing != "":
		out.Reason = reasonReady
		out.Message = "there is a recommendation, except for " + missing
	default:
		out.Reason = reasonReady
		out.Message = "there is a recommendation"
	}

	if out.OK {
		out.Message += s.describeDifferences(sizings)
	}

	return out
}

// describeDifferences returns which Recommendations of rules have other requests for the same target, and why; empty for none.
func (s autoscalerState) describeDifferences(sizings []containerSizing) string {
	applied := adoption.Size{Containers: map[string]rightsize.Resources{}}
	for _, sizing := range sizings {
		if sizing.Target > 0 {
			setAmounts(applied, sizing.container, sizing.Resource, sizing.Target, 0)
		}
	}

	var text strings.Builder
	for i := range s.ruleRecommendations {
		rec := &s.ruleRecommendations[i]
		size, err := targetsnapshot.DesiredSize(rec)
		if err != nil {
			continue // Its own status reports it.
		}

		name := fmt.Sprintf("Recommendation %s (rule %s)", rec.Name, rec.Labels[analysisv1alpha1.LabelRuleName])
		if difference := targetsnapshot.DescribeDifference(name, size, applied, s.evpa); difference != "" {
			text.WriteString("; " + difference)
		}
	}

	return text.String()
}

// appliedCondition returns the progress of the adoption of the requests, or the reason why they are not applied.
func appliedCondition(s autoscalerState, sizings []containerSizing, point scalePoint) condition.State {
	not := func(reason, message string) condition.State {
		return condition.State{Type: conditionApplied, Reason: reason, Message: message}
	}
	switch {
	case s.modeErr != nil:
		return not(reasonUnknownMode, s.modeErr.Error())

	case s.applyProblem != nil:
		return not(s.applyProblem.reason, s.applyProblem.message)

	case s.mode == autoscalingv1alpha1.UpdateModeOff:
		return not(reasonOff, "update mode Off computes, and applies nothing")

	case point.foreignScaler != "":
		return not(reasonNotOwned, point.message)

	case s.recommendation != nil:
		status := s.recommendation.Status
		if c := meta.FindStatusCondition(status.Conditions, analysisv1alpha1.ConditionAdopted); c != nil && c.Status == metav1.ConditionFalse {
			return not(c.Reason, c.Message)
		}

		// A held size is the reason only while the adoption has nothing under way.
		if status.Adoption != nil && slices.Contains([]adoption.Phase{adoption.Untouched, adoption.Resting}, adoption.Phase(status.Adoption.Phase)) {
			if text := heldText(sizings); text != "" {
				return not(reasonHeld, text)
			}
		}

		if status.Adoption != nil {
			return condition.State{
				Type:    conditionApplied,
				OK:      true,
				Reason:  cmp.Or(status.Adoption.Phase, "Adopted"),
				Message: status.Adoption.Message,
			}
		}
	}

	return not(reasonPending, "waiting for the adoption controller")
}

// heldText returns why every request stays as it is although the estimates differ; empty if one does not.
func heldText(sizings []containerSizing) string {
	var texts []string
	for _, sizing := range sizings {
		if sizing.Action != vertical.Hold || sizing.Target == sizing.Request {
			return ""
		}

		texts = append(texts, fmt.Sprintf("%s of %s: %s is needed; %s", sizing.Resource, sizing.container, units.FormatAmount(sizing.Resource, sizing.Target), sizing.Reason))
	}

	return strings.Join(texts, "; ")
}
