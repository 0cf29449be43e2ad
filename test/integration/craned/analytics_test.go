// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// TestAnalyticsFollowed checks, with craned's own rights, that the rule of an Analytics follows its spec, within the shortest period of a
// tenant, and is deleted with it.
func TestAnalyticsFollowed(t *testing.T) {
	c := newClient(t)
	startCraned(t, servePrometheus(t).URL())
	period := int64(1) // Shorter than the least period.
	a := &analysisv1alpha1.Analytics{
		ObjectMeta: metav1.ObjectMeta{Namespace: "followed", Name: "web"},
		Spec: analysisv1alpha1.AnalyticsSpec{
			Type: analysisv1alpha1.AnalysisTypeResource, ResourceSelectors: []analysisv1alpha1.ResourceSelector{{Kind: "Deployment", APIVersion: "apps/v1"}},
			CompletionStrategy: &analysisv1alpha1.CompletionStrategy{CompletionStrategyType: analysisv1alpha1.CompletionStrategyPeriodical, PeriodSeconds: &period},
		},
	}

	create(t, c, deployment("followed", "web"), a)
	await := func(what string, check func([]analysisv1alpha1.RecommendationRule) error) {
		t.Helper()

		eventually(t, what, func(ctx context.Context) error {
			var rules analysisv1alpha1.RecommendationRuleList
			if err := c.List(ctx, &rules, client.MatchingLabels{analysisv1alpha1.LabelAnalyticsName: "web"}); err != nil {
				return err
			}

			return check(rules.Items)
		})
	}

	interval := func(want string) func([]analysisv1alpha1.RecommendationRule) error {
		return func(rules []analysisv1alpha1.RecommendationRule) error {
			if len(rules) != 1 || rules[0].Spec.RunInterval != want {
				return fmt.Errorf("rules %+v", rules)
			}

			return nil
		}
	}

	await("the rule runs once in ten minutes", interval("10m0s"))
	eventually(t, "the Analytics has a condition", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
			return err
		}

		if len(a.Status.Conditions) == 0 {
			return errors.New("none")
		}

		return nil
	})

	patched := a.DeepCopy()
	period = 7200

	patched.Spec.CompletionStrategy.PeriodSeconds = &period
	if err := c.Patch(t.Context(), patched, client.MergeFrom(a)); err != nil {
		t.Fatal(err)
	}

	await("the rule follows", interval("2h0m0s"))
	if err := c.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}

	await("the rule is gone", func(rules []analysisv1alpha1.RecommendationRule) error {
		if len(rules) > 0 {
			return fmt.Errorf("rules %+v", rules)
		}

		return nil
	})
}
