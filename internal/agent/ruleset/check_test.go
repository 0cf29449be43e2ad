// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/pkg/qos"
)

const checkedRule = "kind: NodeQOS\nspec: {rules: [{name: r, metricRule: {name: cpu_total_usage, value: 1}, actionName: a"

// TestOutOfRange checks that values the API server would reject disable their rule or action and are reported.
func TestOutOfRange(t *testing.T) {
	for want, test := range map[string]struct {
		rule, action string
		rules        int
	}{
		`rules[0]: strategy: "preview"`:        {rule: ", strategy: preview"},
		"rules[0]: avoidanceThreshold: -5":     {rule: ", avoidanceThreshold: -5"},
		"rules[0]: restoreThreshold: 0":        {rule: ", restoreThreshold: 0"},
		"coolDownSeconds: -5":                  {action: "coolDownSeconds: -5, eviction: {}", rules: 1},
		"throttle.cpuThrottle.stepCPURatio":    {action: "throttle: {cpuThrottle: {stepCPURatio: 200}}", rules: 1},
		"throttle.cpuThrottle.minCPURatio: -1": {action: "throttle: {cpuThrottle: {minCPURatio: -1, stepCPURatio: 10}}", rules: 1},
		"terminationGracePeriodSeconds: -1":    {action: "eviction: {terminationGracePeriodSeconds: -1}", rules: 1},
	} {
		set, err := Parse([]byte(head + checkedRule + test.rule + "}]}\n---\n" + head + "kind: AvoidanceAction\nspec: {" + test.action + "}\n"))
		if err != nil {
			t.Fatal(err)
		}

		policy, problems := set.Policy(nil, qos.DefaultLimits())
		if len(policy.Rules) != test.rules || !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("Policy = %+v, %q, want %d rules and problem %q", policy.Rules, problems, test.rules, want)
		}

		for _, r := range policy.Rules {
			if r.Action.Throttle != nil || r.Action.Evict != nil {
				t.Errorf("%s: the action is %+v, want an ignored one", want, r.Action)
			}
		}
	}
}

// TestUnreadablePodQOS checks that a PodQOS with an unknown operator matches no pod and is reported.
func TestUnreadablePodQOS(t *testing.T) {
	set, err := Parse([]byte(head + checkedRule + "}]}\n---\n" + head +
		"kind: PodQOS\nspec: {allowedActions: [a], scopeSelector: {matchExpressions: [{scopeName: Namespace, operator: in, values: [batch]}]}}\n"))
	if err != nil {
		t.Fatal(err)
	}

	_, problems := set.Policy(nil, qos.DefaultLimits())
	if !slices.ContainsFunc(problems, func(p string) bool {
		return strings.Contains(p, `PodQOS a: scopeSelector.matchExpressions[0]: unknown operator "in"`)
	}) {
		t.Errorf("problems are %q, want the unknown operator", problems)
	}

	for _, namespace := range []string{"batch", "shop"} {
		if got := set.PodRules().Allowed(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}); got != nil {
			t.Errorf("Allowed in %s = %v, want none by an invalid PodQOS", namespace, got)
		}
	}
}

// TestParseList checks that lists from kubectl get are read like single objects, and other lists are rejected.
func TestParseList(t *testing.T) {
	const item = "- {apiVersion: ensurance.crane.io/v1alpha1, metadata: {name: a, uid: u, resourceVersion: '1', creationTimestamp: '2026-01-05T00:00:00Z'}, "
	set, err := Parse([]byte("apiVersion: v1\nkind: List\nitems:\n" +
		item + "kind: NodeQOS, spec: {rules: [{name: r, metricRule: {name: cpu_total_usage, value: 1}, actionName: a}]}}\n" +
		item + "kind: PodQOS, spec: {allowedActions: [a]}}\n" + item + "kind: AvoidanceAction, spec: {}}\n"))
	if err != nil || len(set.NodeQOS) != 1 || len(set.PodQOS) != 1 || len(set.Actions) != 1 || set.NodeQOS[0].Spec.Rules[0].Name != "r" {
		t.Errorf("Parse of a list = %+v, %v, want one object of each kind", set, err)
	}

	for want, text := range map[string]string{
		"unknown field":     "apiVersion: v1\nkind: List\nitems:\n" + item + "kind: NodeQOS, spec: {rulez: []}}\n",
		"rules: no NodeQOS": "apiVersion: v1\nkind: List\nitems: [5, null, [], {}]\n",
		"is there twice":    "apiVersion: v1\nkind: List\nitems:\n" + item + "kind: NodeQOS, spec: {}}\n" + item + "kind: NodeQOS, spec: {}}\n",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestNeverFires checks that an unreachable threshold, such as a percentage for a ratio, is reported.
func TestNeverFires(t *testing.T) {
	for metric, test := range map[string]struct {
		value    string
		reported bool
	}{
		"node_cpu_usage_ratio":                  {"70", true},
		"cpu_total_utilization":                 {"100", true},
		"memory_total_utilization":              {"99.5", false},
		"node_pressure_memory_full_avg10_ratio": {"1", true},
		"pod_interference_cpu_ratio":            {"100m", false},
		"ext_cpu_total_distribute":              {"120", false}, // the capacity may have shrunk
		"container_run_queue_wait_ratio":        {"2", false},
		"cpu_total_usage":                       {"1e30", false},
	} {
		set, err := Parse([]byte(head + "kind: NodeQOS\nspec: {rules: [{name: r, metricRule: {name: " + metric + ", value: \"" + test.value + "\"}, actionName: a}]}\n---\n" +
			head + "kind: AvoidanceAction\nspec: {}\n"))
		if err != nil {
			t.Fatal(err)
		}

		policy, problems := set.Policy(nil, qos.DefaultLimits())
		if reported := slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, "never fires") }); reported != test.reported || len(policy.Rules) != 1 {
			t.Errorf("%s above %s: %q, reported: want %t", metric, test.value, problems, test.reported)
		}
	}
}
