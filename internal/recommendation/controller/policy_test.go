// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/rightsize"
)

// TestPoliciesOfRules: a rule's settings hold a policy with rules, and a workload may name its class.
func TestPoliciesOfRules(t *testing.T) {
	const own = `
name: ours
cpu: {margin: 0.1}
rules:
- match: {kinds: [CronJob]}
  policy: batch
`

	job := workload.Workload{Ref: workload.Ref{Namespace: "shop", Kind: "CronJob", Name: "etl"}}
	web := workload.Workload{
		Ref:         workload.Ref{Namespace: "shop", Kind: "Deployment", Name: "web"},
		Annotations: map[string]string{rightsize.ClassAnnotation: "latency-sensitive"},
	}

	plain := workload.Workload{Ref: workload.Ref{Namespace: "shop", Kind: "Deployment", Name: "plain"}}
	for name, c := range map[string]struct {
		config          map[string]string
		job, web, plain string
	}{
		"built in":         {nil, "default", "latency-sensitive", "default"},
		"a name":           {map[string]string{"policy": "batch"}, "batch", "latency-sensitive", "batch"},
		"written out":      {map[string]string{"policy": own}, "batch", "latency-sensitive", "ours"},
		"gocrane's keys":   {map[string]string{"cpu-request-percentile": "0.95"}, "gocrane", "gocrane", "gocrane"},
		"calibrated":       {map[string]string{"policy": "calibrated", "target": "0.01"}, "calibrated", "latency-sensitive", "calibrated"},
		"JSON on one line": {map[string]string{"policy": `{"name": "ours"}`}, "ours", "latency-sensitive", "ours"},
	} {
		run, err := resourceRun(BuiltinRegistry().DefaultSettings(), analysisv1alpha1.Recommender{Name: "Resource", Config: c.config})
		if err != nil {
			t.Errorf("%s: configuring the recommender returned error %v, want none", name, err)
			continue
		}

		for _, w := range []struct {
			of   workload.Workload
			want string
		}{{job, c.job}, {web, c.web}, {plain, c.plain}} {
			if p, why := run.policies.For(w.of.Subject()); p.Name != w.want {
				t.Errorf("%s: %s has %q (%s), want %q", name, w.of.Ref, p.Name, why, w.want)
			}
		}
	}

	for config, says := range map[string]string{
		"name: a\nrules: [{match: {}, policy: batch}]": "rules[0].match",
		"name: a\ncpu: {margn: 1}":                     "cpu.margn",
		"name: a\nname: b\n":                           "config[policy]",
		"{":                                            "config[policy]",
	} {
		_, err := resourceRun(BuiltinRegistry().DefaultSettings(), analysisv1alpha1.Recommender{Name: "Resource", Config: map[string]string{"policy": config}})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want it to say %s", config, err, says)
		}
	}

	mixed := map[string]string{"policy": own, "cpu-request-percentile": "0.9"}
	if _, err := resourceRun(BuiltinRegistry().DefaultSettings(), analysisv1alpha1.Recommender{Name: "Resource", Config: mixed}); err == nil {
		t.Error("a policy beside settings of gocrane returned no error, want one")
	}
}

// resourceSettings is the Resource recommender as a rule has it.
type resourceSettings struct {
	configuredRecommender
	policies rightsize.PolicySet
}

func resourceRun(s Settings, r analysisv1alpha1.Recommender) (resourceSettings, error) {
	one, err := s.configure(r)
	out := resourceSettings{configuredRecommender: one}
	if job, ok := one.evaluator.(*resourceEvaluator); ok {
		out.policies = job.policies
	}

	return out, err
}

// TestTargetOfCalibratedPolicy checks the setting target, which only the policy calibrated has.
func TestTargetOfCalibratedPolicy(t *testing.T) {
	run := func(config map[string]string) (rightsize.Policy, error) {
		evaluator, err := resourceRun(BuiltinRegistry().DefaultSettings(), analysisv1alpha1.Recommender{Name: "Resource", Config: config})
		if err != nil {
			return rightsize.Policy{}, err
		}

		return evaluator.policies.Default, nil
	}

	for target, want := range map[string]float64{"": 0.005, "0.01": 0.01, "0.0025": 0.0025} {
		config := map[string]string{"policy": "calibrated"}
		if target != "" {
			config["target"] = target
		}
		if p, err := run(config); err != nil || float64(p.CPU.Target) != want {
			t.Errorf("target %q gives %v, error %v, want %v", target, p.CPU.Target, err, want)
		}
	}

	for _, config := range []map[string]string{
		{"policy": "calibrated", "target": "0.001"},
		{"policy": "calibrated", "target": "NaN"},
		{"policy": "calibrated", "target": "x"},
		{"policy": "calibrated", "cpu-request-percentile": "0.9"},
		{"policy": "batch", "target": "0.01"},
	} {
		if _, err := run(config); err == nil {
			t.Errorf("config %v returned no error, want one", config)
		}
	}
}
