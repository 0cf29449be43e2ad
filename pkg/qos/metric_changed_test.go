// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"testing"
	"time"
)

// TestEvaluate_MetricCorrected checks that a rule with a corrected metric name is evaluated at once and starts counting anew.
func TestEvaluate_MetricCorrected(t *testing.T) {
	policy := Policy{Limits: DefaultLimits(), Rules: []Rule{{
		Name: "r", Metric: "cpu_load_1_mim", Threshold: 10, TriggerCount: 2, RestoreCount: 2, MaxAge: time.Minute, Action: Action{Name: "a", CoolDown: time.Second},
	}}}

	var state State
	for i, step := range []struct {
		metric string
		want   Phase
	}{
		{"cpu_load_1_mim", Unknown},
		{"cpu_load_1_min", Rising},
		{"cpu_load_5_min", Rising}, // another metric starts anew
		{"cpu_load_5_min", Firing},
		{"cpu_load_5_mim", Unknown},
		{"cpu_load_5_min", Rising},
	} {
		policy.Rules[0].Metric = step.metric
		if got := Decide(&policy, observation(i, step.metric, 11), &state).Rules[0]; got.Phase != step.want {
			t.Errorf("look %d at %s: %s (%s), want %s", i, step.metric, got.Phase, got.Reason, step.want)
		}
	}
}
