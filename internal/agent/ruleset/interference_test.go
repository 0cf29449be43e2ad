// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/pkg/qos"
)

// TestNoThrottleOfDisks checks that throttling is reported as ineffective for a rule on disks.
func TestNoThrottleOfDisks(t *testing.T) {
	for metric, want := range map[string]int{"pod_interference_io_ratio": 1, "pod_disk_reads_per_second": 1, "disk_write_kibps": 1, "node_disk_busy_ratio": 1, "node_pressure_io_some_avg10_ratio": 1, "node_pressure_cpu_some_avg10_ratio": 0, "pod_interference_cpu_ratio": 0} {
		set, err := Parse([]byte(head + "kind: NodeQOS\nspec: {rules: [{name: r, metricRule: {name: " + metric + ", value: 500m}, actionName: a}]}\n---\n" +
			head + "kind: AvoidanceAction\nspec: {throttle: {cpuThrottle: {stepCPURatio: 10}}}\n"))
		if err != nil {
			t.Fatal(err)
		}

		if _, problems := set.Policy(nil, qos.DefaultLimits()); len(problems) != want || want > 0 && !strings.Contains(problems[0], "throttles nothing for "+metric) {
			t.Errorf("%s: problems %q, want %d", metric, problems, want)
		}
	}
}

// TestNothingToTake checks that actions are reported as ineffective for metrics that are not use.
func TestNothingToTake(t *testing.T) {
	for metric, want := range map[string]int{"memory_total": 1, "container_cpu_quota": 1, "memory_total_usage": 0} {
		set, err := Parse([]byte(head + "kind: NodeQOS\nspec: {rules: [{name: r, metricRule: {name: " + metric + ", value: 500}, actionName: a}]}\n---\n" +
			head + "kind: AvoidanceAction\nspec: {eviction: {}}\n"))
		if err != nil {
			t.Fatal(err)
		}

		if _, problems := set.Policy(nil, qos.DefaultLimits()); len(problems) != want || want > 0 && !strings.Contains(problems[0], "does nothing for "+metric) {
			t.Errorf("%s: problems %q, want %d", metric, problems, want)
		}
	}
}

// TestInterferenceExample checks that every part of the example has an effect.
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
	if len(problems) > 0 || len(policy.Rules) != 3 || !policy.Rules[2].Preview || policy.Rules[2].Metric != qos.InterferenceIO || policy.Rules[2].Action.Evict == nil || policy.Rules[0].Threshold != 0.1 || !policy.Rules[1].Preview || policy.Rules[0].Action.Throttle == nil || policy.Rules[0].Action.ThrottleMemory == nil {
		t.Errorf("rules %+v, problems %q; want the three of the example", policy.Rules, problems)
	}

	pod := func(workload string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"workload": workload}}}
	}

	if p, ok := set.PodRules().CPUPriority(pod("web")); !ok || p != 0 || len(set.PodRules().Allowed(pod("web"))) > 0 {
		t.Errorf("web: priority %d, %t, actions %v; want 0 and none", p, ok, set.PodRules().Allowed(pod("web")))
	}
	if allowed := set.PodRules().Allowed(pod("batch")); len(allowed) != 2 || allowed[0] != policy.Rules[0].Action.Name || allowed[1] != policy.Rules[2].Action.Name {
		t.Errorf("batch: actions %v, want those of the first and the third rule", allowed)
	}
}
