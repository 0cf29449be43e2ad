// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

// TestValidateEstimatorConfig checks that settings with which the estimator would fail are refused.
func TestValidateEstimatorConfig(t *testing.T) {
	for name, c := range map[string]struct {
		kind    string
		config  map[string]string
		refused bool
	}{
		"gocrane's":       {"Percentile", map[string]string{"cpu-request-percentile": "0.98", "cpu-model-init-mode": "history", "mem-sample-interval": "1m"}, false},
		"a policy":        {"Percentile", map[string]string{"policy": "batch"}, false},
		"no number":       {"Percentile", map[string]string{"cpu-request-percentile": "high"}, true},
		"unknown":         {"Percentile", map[string]string{"percentile": "0.9"}, true},
		"OOM":             {"OOM", map[string]string{"oom-bump-ratio": "1.5", "workload.web": "2"}, false},
		"OOM, too little": {"OOM", map[string]string{"oom-bump-ratio": "0"}, true},
		"external":        {"Theirs", map[string]string{"what": "ever"}, false},
	} {
		e := &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}
		e.Spec.ResourceEstimators = []autoscalingv1alpha1.ResourceEstimator{{Type: c.kind, Config: c.config}}
		if v := ValidateEffectiveVerticalPodAutoscaler(e, Facts{}); (len(v.Errors) > 0) != c.refused {
			t.Errorf("%s: errors %v, want some: %t", name, v.Errors, c.refused)
		}
	}
}
