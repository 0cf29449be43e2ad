// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// Reasons of conditions and events.
const (
	reasonOtherRecommendation = "OtherRecommendationAdopted"
	reasonTargetGone          = "TargetGone"

	reasonNotSupported    = "KindNotSupported"
	reasonUnreadableState = "UnreadableState"
	reasonStopped         = "Stopped"
)

// maxMessage of a condition; the API takes 32768.
const maxMessage = 1024

// outcome is what became of a Recommendation in one look.
type outcome struct {
	// reason is empty where all is well.
	reason, message string
	// requeueAfter is when to look again; 0 for only after a change.
	requeueAfter time.Duration
	// adopted tells that the Recommendation is carried out, and that its status says how far.
	adopted bool
}

// reportStatus brings the condition Adopted in line: there, and False, while something is in the way; absent otherwise, which
// spares a write for each Recommendation. What is not carried out, or not any more, says nothing of how far it has come.
func (r *Reconciler) reportStatus(ctx context.Context, rec *analysisv1alpha1.Recommendation, v outcome) error {
	changed := rec.DeepCopy()
	told := false
	if v.reason == "" {
		meta.RemoveStatusCondition(&changed.Status.Conditions, analysisv1alpha1.ConditionAdopted)
	} else {
		told = meta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
			Type: analysisv1alpha1.ConditionAdopted, Status: metav1.ConditionFalse, Reason: v.reason, Message: truncate(v.message),
			ObservedGeneration: rec.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
		})
	}
	if !v.adopted {
		changed.Status.Adoption = nil
	}
	if equality.Semantic.DeepEqual(rec.Status, changed.Status) {
		return nil
	}
	// Conditions are one list, and the rule's rounds write it too: the lock keeps the later writer from undoing it.
	patch := client.MergeFromWithOptions(rec, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, patch)); err != nil {
		return fmt.Errorf("writing the status of recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}
	if told {
		r.Events.Eventf(rec, nil, corev1.EventTypeWarning, v.reason, "Adopt", "%s", truncate(v.message))
	}
	return nil
}

func truncate(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + " (and more)"
}
