// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// TestAnalyticsNamesNoAddress checks that the status of an Analytics, which is in a namespace, has no address of a server from the
// status of its rule, which is not.
func TestAnalyticsNamesNoAddress(t *testing.T) {
	for reason, want := range map[string]string{
		reasonSourceFailed:  "RecommendationRule r failed and is tried again; its status has the error.",
		reasonInvalidConfig: "RecommendationRule r: http://10.1.2.3:9090 of the rule's own",
	} {
		rule := &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: "r", Generation: 1}}
		rule.Status.Conditions = []metav1.Condition{{
			Type: analysisv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: "http://10.1.2.3:9090 of the rule's own", ObservedGeneration: 1,
		}}
		if got := analyticsCondition(rule, []string{"key"}); got.reason != reason || !strings.HasPrefix(got.message, want) || !strings.HasSuffix(got.message, "key.") {
			t.Errorf("%s: %+v", reason, got)
		}
	}
}
