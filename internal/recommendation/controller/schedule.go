// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/units"
)

const (
	// minRunInterval is the shortest time between two runs of one rule. History has steps of a minute, so that a shorter
	// interval would have no new data.
	minRunInterval = 10 * time.Second
	// retryIncomplete is the time after which a rule that runs once retries selectors that failed, for example because their
	// kind was not installed.
	retryIncomplete = 10 * time.Minute
	// clockTolerance is how far in the future the last run may lie; beyond it the clock was set back.
	clockTolerance = time.Minute
)

// schedule defines when a rule runs.
type schedule struct {
	// once rules have one run per generation of their spec.
	once     bool
	interval time.Duration
}

func parseSchedule(rule *analysisv1alpha1.RecommendationRule) (schedule, error) {
	text := strings.TrimSpace(rule.Spec.RunInterval)
	if text == "" {
		return schedule{once: true}, nil
	}

	interval, err := units.ParseDuration(text)
	if err != nil {
		return schedule{}, fmt.Errorf("spec.runInterval: %w", err)
	}

	if interval <= 0 {
		return schedule{}, fmt.Errorf("spec.runInterval: %q must be more than zero; leave it empty to run once", text)
	}

	return schedule{interval: max(interval, minRunInterval)}, nil
}

// wait returns the time until the next run; never is true if there is none before the spec changes.
func (s schedule) wait(rule *analysisv1alpha1.RecommendationRule, now time.Time) (wait time.Duration, never bool) {
	last := rule.Status.LastUpdateTime
	if last == nil {
		return 0, false
	}

	// A rule whose last run failed, or evaluated an earlier spec, runs again at once. Rules of gocrane have no condition.
	ready := meta.FindStatusCondition(rule.Status.Conditions, analysisv1alpha1.ConditionReady)
	if ready != nil && (ready.ObservedGeneration != rule.Generation || isRetriedReason(ready.Reason)) {
		return 0, false
	}

	interval := s.interval
	if s.once {
		if ready == nil || ready.Reason != reasonSelectorFailed {
			return 0, true
		}

		interval = retryIncomplete
	}

	if last.After(now.Add(clockTolerance)) {
		return 0, false
	}

	return max(0, last.Add(interval).Sub(now)), false
}

// next returns the time from now to the run after one that ended at last; 0 if there is none.
func (s schedule) next(last, now time.Time) time.Duration {
	if s.once {
		return 0
	}

	return max(last.Add(s.interval).Sub(now), time.Second)
}

// hasYoungTargets reports whether targets were too young for the last run of a rule.
func hasYoungTargets(rule *analysisv1alpha1.RecommendationRule) bool {
	ready := meta.FindStatusCondition(rule.Status.Conditions, analysisv1alpha1.ConditionReady)
	return ready != nil && ready.Reason == reasonTargetsYoung && rule.Status.LastUpdateTime != nil
}

// isRetriedReason reports whether a run with this reason is retried, at once or when the configuration file changes.
func isRetriedReason(reason string) bool {
	return reason == reasonSourceFailed || reason == reasonReadFailed || reason == reasonWriteFailed || reason == reasonInvalidConfig
}
