// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"strings"
	"testing"

	"crane.io/crane/pkg/qos"
)

// TestMemoryThrottle checks that forceGC reclaims, and that memory throttling is reported as ineffective for other rules.
func TestMemoryThrottle(t *testing.T) {
	for metric, useless := range map[string]bool{
		"memory_total_usage": false, "node_pressure_memory_some_avg10_ratio": false, "cpu_total_usage": true, "node_pressure_cpu_some_avg10_ratio": true,
	} {
		for text, reclaim := range map[string]bool{"{}": false, "{forceGC: true}": true} {
			set, err := Parse([]byte(head + "kind: NodeQOS\nspec: {rules: [{name: r, metricRule: {name: " + metric + ", value: 500m}, actionName: a}]}\n---\n" +
				head + "kind: AvoidanceAction\nspec: {throttle: {memoryThrottle: " + text + "}}\n"))
			if err != nil {
				t.Fatal(err)
			}

			policy, problems := set.Policy(nil, qos.DefaultLimits())
			if len(policy.Rules) != 1 || policy.Rules[0].Action.ThrottleMemory == nil || policy.Rules[0].Action.ThrottleMemory.Reclaim != reclaim {
				t.Errorf("%s %s: rules %+v, want one that throttles memory, reclaim %t", metric, text, policy.Rules, reclaim)
			}
			if reported := len(problems) == 1 && strings.Contains(problems[0], "throttles no memory"); reported != useless || len(problems) > 1 {
				t.Errorf("%s %s: problems %v, want one without effect: %t", metric, text, problems, useless)
			}
		}
	}
}
