// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"fmt"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

// checkRule says what the API server would refuse of a rule. One of a file, or one that was stored before there was a schema, has passed
// nobody; and a guess at what was meant, such as a Preview that is written in another way, could evict somebody.
func checkRule(r *ensurancev1alpha1.Rule) error {
	switch r.Strategy {
	case "", ensurancev1alpha1.AvoidanceActionStrategyNone, ensurancev1alpha1.AvoidanceActionStrategyPreview:
	default:
		return fmt.Errorf("strategy: %q: must be %s or %s", r.Strategy, ensurancev1alpha1.AvoidanceActionStrategyNone, ensurancev1alpha1.AvoidanceActionStrategyPreview)
	}
	if n := r.AvoidanceThreshold; n != nil && *n < 1 {
		return fmt.Errorf("avoidanceThreshold: %d: must be at least 1", *n)
	}
	if n := r.RestoreThreshold; n != nil && *n < 1 {
		return fmt.Errorf("restoreThreshold: %d: must be at least 1", *n)
	}
	return nil
}

// checkAction is checkRule for an AvoidanceAction.
func checkAction(a *ensurancev1alpha1.AvoidanceActionSpec) error {
	if n := a.CoolDownSeconds; n != nil && *n < 1 {
		return fmt.Errorf("coolDownSeconds: %d: must be at least 1", *n)
	}
	if a.Throttle != nil && a.Throttle.CPUThrottle != nil {
		t := a.Throttle.CPUThrottle
		if t.MinCPURatio < 0 || t.MinCPURatio > 100 {
			return fmt.Errorf("throttle.cpuThrottle.minCPURatio: %d: must be from 0 to 100", t.MinCPURatio)
		}
		if t.StepCPURatio < 0 || t.StepCPURatio > 100 {
			return fmt.Errorf("throttle.cpuThrottle.stepCPURatio: %d: must be from 0 to 100", t.StepCPURatio)
		}
	}
	if a.Eviction != nil && a.Eviction.TerminationGracePeriodSeconds != nil && *a.Eviction.TerminationGracePeriodSeconds < 0 {
		return fmt.Errorf("eviction.terminationGracePeriodSeconds: %d: must be at least 0", *a.Eviction.TerminationGracePeriodSeconds)
	}
	return nil
}
