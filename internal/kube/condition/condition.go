// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package condition builds status conditions: bounded messages, and transition times that move only when a status changes.
package condition

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxMessageBytes bounds the message of a condition.
const maxMessageBytes = 1024

// State is the desired content of one condition.
type State struct {
	Type string
	// OK sets the status to True, otherwise to False.
	OK              bool
	Reason, Message string
}

// Set writes the condition into the list. The transition time moves only when the status changes.
func (s State) Set(conditions *[]metav1.Condition, generation int64, now time.Time) {
	status := metav1.ConditionFalse
	if s.OK {
		status = metav1.ConditionTrue
	}

	meta.SetStatusCondition(conditions, metav1.Condition{
		Type:               s.Type,
		Status:             status,
		Reason:             s.Reason,
		Message:            Message(s.Message),
		ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now),
	})
}

// Message returns the text on one line and with at most 1,024 bytes.
func Message(text string) string {
	text = strings.ReplaceAll(text, "\n", "; ")
	if len(text) <= maxMessageBytes {
		return text
	}

	const ellipsis = " ..."
	return strings.ToValidUTF8(text[:maxMessageBytes-len(ellipsis)], "") + ellipsis
}

// BecameFalse returns the condition of a type where it turned False, or stayed False with another reason, and nil otherwise.
func BecameFalse(before, after []metav1.Condition, conditionType string) *metav1.Condition {
	was := meta.FindStatusCondition(before, conditionType)
	is := meta.FindStatusCondition(after, conditionType)
	if is == nil || is.Status != metav1.ConditionFalse || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return nil
	}

	return is
}
