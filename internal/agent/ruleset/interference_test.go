// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/pkg/qos"
)

// TestInterferenceExample: every part of the example has an effect.
func TestInterferenceExample(t *testing.T) {
	content, err := os.ReadFile("../../../examples/interference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, err := Parse(content)
	if err != nil {
		t.Fatal(err)
	}
	policy, problems := set.Policy(map[string]string{"pool": "mixed"}, qos.DefaultLimits())
	if len(problems) > 0 || len(policy.Rules) != 2 || policy.Rules[0].Above != 0.1 || !policy.Rules[1].Preview || policy.Rules[0].Action.Throttle == nil || policy.Rules[0].Action.ThrottleMemory == nil {
		t.Errorf("%+v, %q", policy.Rules, problems)
	}
	pod := func(workload string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"workload": workload}}}
	}
	if p, ok := set.CPUPriority(pod("web")); !ok || p != 0 || len(set.Allowed(pod("web"))) > 0 {
		t.Errorf("web: %d, %t, %v", p, ok, set.Allowed(pod("web")))
	}
	if allowed := set.Allowed(pod("batch")); len(allowed) != 1 || allowed[0] != policy.Rules[0].Action.Name {
		t.Errorf("batch: %v", allowed)
	}
}
