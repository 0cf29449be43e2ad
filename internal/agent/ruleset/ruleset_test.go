// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/pkg/qos"
)

// TestExample checks that the published example means what its comments state.
func TestExample(t *testing.T) {
	content, err := os.ReadFile("../../../examples/node-qos.yaml")
	if err != nil {
		t.Fatal(err)
	}

	set, err := Parse(content)
	if err != nil {
		t.Fatal(err)
	}

	policy, problems := set.Policy(map[string]string{"pool": "mixed"}, qos.DefaultLimits())
	if len(problems) > 0 || len(policy.Rules) != 2 {
		t.Fatalf("problems %v, rules %+v; want none and two", problems, policy.Rules)
	}

	cpu := policy.Rules[0]
	memory := policy.Rules[1]

	if cpu.Name != "mixed/cpu-high" || cpu.Threshold != 80 || cpu.TriggerCount != 2 || cpu.RestoreCount != 5 || cpu.Preview || cpu.MaxAge != time.Minute ||
		cpu.Action.CoolDown != time.Minute || cpu.Action.Throttle.Step != 0.2 || cpu.Action.Throttle.Floor != 0.1 || cpu.Action.Evict != nil {
		t.Errorf("the CPU rule is %+v, want the settings of the example", cpu)
	}
	if !memory.Preview || memory.TriggerCount != 1 || memory.RestoreCount != 1 || *memory.Action.Evict.GracePeriod != time.Minute || memory.Action.Throttle != nil {
		t.Errorf("the memory rule is %+v, want a preview with defaults that evicts within a minute", memory)
	}
	if policy, _ = set.Policy(map[string]string{"pool": "other"}, qos.DefaultLimits()); len(policy.Rules) > 0 {
		t.Errorf("rules of another node are %+v, want none", policy.Rules)
	}

	if policy, _ = set.Policy(nil, qos.DefaultLimits()); len(policy.Rules) != 2 {
		t.Errorf("rules without labels are %+v, want all", policy.Rules)
	}

	batch := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"workload": "batch"}}, Status: corev1.PodStatus{QOSClass: corev1.PodQOSBurstable}}
	if got := set.PodRules().Allowed(batch); !slices.Equal(got, []string{"throttle-batch", "evict-batch"}) {
		t.Errorf("Allowed of a batch pod = %v, want throttle-batch and evict-batch", got)
	}

	batch.Status.QOSClass = corev1.PodQOSGuaranteed
	if got := set.PodRules().Allowed(batch); got != nil {
		t.Errorf("Allowed of a Guaranteed pod = %v, want none", got)
	}
}

const head = "apiVersion: ensurance.crane.io/v1alpha1\nmetadata: {name: a}\n"

// TestFractions checks that quantities keep fractions (gocrane compared with 1 instead of 0.5).
func TestFractions(t *testing.T) {
	for text, want := range map[string]float64{"0.5": 0.5, "500m": 0.5, "\"1.5\"": 1.5, "3": 3, "2Gi": 2 << 30} {
		set, err := Parse([]byte(head + "kind: NodeQOS\nspec: {rules: [{name: r, metricRule: {name: cpu_load_1_min, value: " + text + "}, actionName: x}]}\n"))
		if err != nil {
			t.Fatal(err)
		}

		policy, problems := set.Policy(nil, qos.DefaultLimits())
		if len(policy.Rules) != 1 || policy.Rules[0].Threshold != want {
			t.Errorf("%s: rules %+v, want threshold %v", text, policy.Rules, want)
		}
		if len(problems) != 1 || !strings.Contains(problems[0], "AvoidanceAction x does not exist") || policy.Rules[0].Action.CoolDown != defaultCoolDown {
			t.Errorf("problems %v, rules %+v; want the missing action and the default cool-down", problems, policy.Rules)
		}
	}
}

// TestBadRules checks that a bad rule is reported and does not affect others.
func TestBadRules(t *testing.T) {
	set, err := Parse([]byte(head + `kind: NodeQOS
spec:
  rules:
  - {name: none, actionName: x}
  - {name: negative, metricRule: {name: cpu_total_usage, value: -1}, actionName: x}
  - {name: zero, metricRule: {name: cpu_total_usage, value: 0}, actionName: x}
  - {name: selector, metricRule: {name: cpu_total_usage, value: 1, selector: {matchExpressions: [{key: a, operator: Near}]}}, actionName: x}
  - {name: good, metricRule: {name: cpu_total_usage, value: 1}, actionName: x}
`))
	if err != nil {
		t.Fatal(err)
	}

	policy, problems := set.Policy(nil, qos.DefaultLimits())
	if len(policy.Rules) != 1 || policy.Rules[0].Name != "a/good" || len(problems) != 5 {
		t.Errorf("rules %+v, problems %q; want only a/good and 5 problems", policy.Rules, problems)
	}

	for i, want := range []string{"rules[0]: none has no metricRule", "rules[1]", "rules[2]", "rules[3]: metricRule.selector", "rules[4].actionName"} {
		if i < len(problems) && !strings.Contains(problems[i], want) {
			t.Errorf("%q, want %q", problems[i], want)
		}
	}
}

// TestContradictions checks that duplicate names, and equal actions at different values, are reported within and across NodeQOS.
func TestContradictions(t *testing.T) {
	const of = "apiVersion: ensurance.crane.io/v1alpha1\nkind: NodeQOS\n"
	set, err := Parse([]byte(of + `metadata: {name: a}
spec:
  rules:
  - {name: cpu, metricRule: {name: cpu_total_usage, value: 1000}, actionName: calm}
  - {name: cpu, metricRule: {name: cpu_total_usage, value: 2000}, actionName: calm}
  - {name: later, metricRule: {name: cpu_total_usage, value: 3000}, actionName: evict}
---
` + of + `metadata: {name: b}
spec:
  rules:
  - {name: cpu, metricRule: {name: cpu_total_usage, value: 4000}, actionName: calm}
  - {name: disk, metricRule: {name: network_drop_in, value: 1, selector: {matchLabels: {NetInterface: eth0}}}, actionName: calm}
  - {name: other-disk, metricRule: {name: network_drop_in, value: 2, selector: {matchLabels: {NetInterface: eth1}}}, actionName: calm}
  - {name: seen, strategy: Preview, metricRule: {name: network_drop_in, value: 2, selector: {matchLabels: {NetInterface: eth1}}}, actionName: calm}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: calm}
spec: {throttle: {cpuThrottle: {stepCPURatio: 10}}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: evict}
spec: {throttle: {cpuThrottle: {minCPURatio: 10}}}
`))
	if err != nil {
		t.Fatal(err)
	}

	policy, problems := set.Policy(nil, qos.DefaultLimits())
	if len(policy.Rules) != 6 || policy.Rules[0].Threshold != 1000 {
		t.Errorf("rules are %+v, want 6, the first with threshold 1000", policy.Rules)
	}

	for i, want := range []string{
		"NodeQOS a: rules[1].name: duplicate of rule cpu", "rules[2].actionName: AvoidanceAction evict has stepCPURatio 0",
		"NodeQOS b: rules[0]: rule a/cpu also evaluates cpu_total_usage, above 1000 and not above 4000", "NodeQOS b: rules[3]: rule b/other-disk", "",
	} {
		if i == len(problems) && want == "" {
			break
		}

		if i >= len(problems) || want == "" || !strings.Contains(problems[i], want) {
			t.Errorf("problem %d: %q, want %q", i, problems, want)
			break
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for want, text := range map[string]string{
		"no NodeQOS":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"unknown kind":     head + "kind: NodeQoS\n",
		"is there twice":   head + "kind: NodeQOS\nspec: {}\n---\n" + head + "kind: NodeQOS\nspec: {}\n",
		"has no name":      "apiVersion: ensurance.crane.io/v1alpha1\nkind: NodeQOS\nspec: {}\n",
		"want ensurance":   "apiVersion: ensurance.crane.io/v1\nkind: NodeQOS\nmetadata: {name: a}\n",
		"NodeQOS a":        head + "kind: NodeQOS\nspec: {rules: 5}\n",
		"unknown field":    head + "kind: NodeQOS\nspec: {rulez: []}\n",
		"wants apiVersion": "a: 1\n",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzParse checks that any file is rejected or yields a policy.
func FuzzParse(f *testing.F) {
	f.Add(head + "kind: NodeQOS\nspec: {rules: [{name: r, metricRule: {name: cpu_load_1_min, value: 1}, actionName: x}]}\n")
	f.Add(head + "kind: AvoidanceAction\nspec: {coolDownSeconds: -5, throttle: {cpuThrottle: {stepCPURatio: 900}}}\n---\n" + head + "kind: NodeQOS\nspec: {}\n")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Parse([]byte(text))
		if err != nil {
			return
		}

		policy, _ := set.Policy(nil, qos.DefaultLimits())
		for _, r := range policy.Rules {
			if !(r.Threshold > 0) || r.TriggerCount < 1 || r.RestoreCount < 1 || r.MaxAge <= 0 {
				t.Errorf("the rule is %+v, want positive thresholds, counts and age", r)
			}
			if th := r.Action.Throttle; th != nil && !(th.Step >= 0 && th.Step <= 1 && th.Floor >= 0 && th.Floor <= 1) {
				t.Errorf("the throttling is %+v, want shares from 0 to 1", th)
			}
		}
	})
}
