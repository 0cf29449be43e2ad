// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// Condition types beside Ready.
const (
	// conditionLearning, on a Recommendation, is True while a container has too little history.
	conditionLearning = analysisv1alpha1.ConditionLearning
	// conditionFailed, on a Recommendation, is True if the last evaluation failed; the value is then that of the last
	// successful one.
	conditionFailed = analysisv1alpha1.ConditionFailed
)

// Reasons of conditions and events.
const (
	reasonLearning       = "InsufficientHistory"
	reasonLearned        = "EnoughHistory"
	reasonNoUsage        = "NoUsage"
	reasonEvaluated      = "Evaluated"
	reasonRoundCompleted = "RoundCompleted"
	reasonTargetsYoung   = "TargetsTooYoung"
	// reasonNoTargets and reasonNamespaceNotFound are of rules whose selectors match nothing, and of rules that name a namespace
	// that does not exist.
	reasonNoTargets         = "NoTargets"
	reasonNamespaceNotFound = "NamespaceNotFound"
	reasonInvalidInterval   = "InvalidRunInterval"
	reasonInvalidConfig     = "InvalidRecommender"
	reasonSelectorFailed    = "SelectorFailed"
	reasonSourceFailed      = "DataSourceFailed"
	reasonWriteFailed       = "WriteFailed"
	reasonTargetsFailed     = "TargetsFailed"
	reasonReadFailed        = "ReadFailed"

	reasonUnreadable    = "TargetUnreadable"
	reasonTargetRefused = "TargetRefused"
	reasonCleared       = "NothingToRecommend"

	reasonAnalyticsReady     = "AnalyticsReady"
	reasonNotEvaluated       = "NotEvaluated"
	reasonNotConverted       = "NotConverted"
	reasonSettingsLoaded     = "RecommendationConfigurationLoaded"
	reasonSettingsRejected   = "RecommendationConfigurationRefused"
	reasonSettingsInvalid    = "RecommendationConfigurationInvalid"
	reasonAutoscaled         = "Autoscaled"
	reasonAutoscalerNotOwned = "AutoscalerNotOwned"
	reasonProposalOnly       = "ProposalOnly"

	reasonTargetGone     = "TargetGone"
	reasonNotSelected    = "NotSelected"
	maxConditionMessage  = 1024
	maxListedFailures    = 5
	conditionMessageMore = " (and more)"
)

// condition is a condition without generation and time.
type condition struct {
	conditionType string
	status        bool
	reason        string
	message       string
}

// set updates conditions if the condition differs, and reports whether it did. The transition time changes only with the
// status.
func (s condition) set(conditions *[]metav1.Condition, generation int64, now time.Time) bool {
	status := metav1.ConditionFalse
	if s.status {
		status = metav1.ConditionTrue
	}

	return meta.SetStatusCondition(conditions, metav1.Condition{
		Type:               s.conditionType,
		Status:             status,
		Reason:             s.reason,
		Message:            truncateMessage(s.message),
		ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now),
	})
}

// truncateMessage shortens a message to the maximum length of conditions and events.
func truncateMessage(message string) string {
	if len(message) > maxConditionMessage {
		return strings.ToValidUTF8(message[:maxConditionMessage], "") + conditionMessageMore
	}

	return message
}

// joinErrors joins the first errors in one line.
func joinErrors(errs []error) string {
	var parts []string
	for i, err := range errs {
		if i == maxListedFailures {
			parts = append(parts, fmt.Sprintf("and %d more", len(errs)-i))
			break
		}

		parts = append(parts, strings.ReplaceAll(err.Error(), "\n", "; "))
	}

	return strings.Join(parts, "; ")
}

// notReady returns a False Ready condition.
func notReady(reason, message string) condition {
	return condition{conditionType: analysisv1alpha1.ConditionReady, reason: reason, message: message}
}

// notApplicable returns a False Applicable condition, which keeps a ready Recommendation from being applied.
func notApplicable(reason, message string) *condition {
	return &condition{conditionType: analysisv1alpha1.ConditionApplicable, reason: reason, message: message}
}
