// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"fmt"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

// checkRule validates a rule as the API server does. Rules of a file, or stored before the schema, were not validated, and guessing their
// meaning, such as that of a misspelled Preview, could evict pods.
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

// checkAction validates an AvoidanceAction as the API server does.
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
