// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policyfile_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"crane.io/crane/config"
	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/nodeload"
)

func shipped(t *testing.T, name string) []byte {
	t.Helper()

	content, err := config.NodeLoad.ReadFile("nodeload/" + name)
	if err != nil {
		t.Fatal(err)
	}

	return content
}

// TestShippedPolicies checks that the ConfigMap holds the built-in policy verbatim, that its queries are PromQL, and
// that the policy that reads recording rules decides alike.
func TestShippedPolicies(t *testing.T) {
	var object struct {
		Metadata struct{ Name, Namespace string }
		Data     map[string]string
	}

	if err := yaml.Unmarshal(shipped(t, "configmap.yaml"), &object); err != nil {
		t.Fatal(err)
	}

	file, err := os.ReadFile("default.yaml")
	if err != nil {
		t.Fatal(err)
	}

	_, text, _ := strings.Cut(string(file), "#\n")
	if object.Data["policy.yaml"] != text {
		t.Error("config/nodeload/configmap.yaml does not hold internal/nodeload/policyfile/default.yaml")
	}

	builtin, err := policyfile.Builtin()
	if err != nil {
		t.Fatal(err)
	}

	withRules, err := policyfile.Decode(shipped(t, "policy-recording-rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	p := parser.NewParser(parser.Options{})
	for i := range builtin.Metrics {
		if _, err := p.ParseExpr(builtin.Metrics[i].Query); err != nil || builtin.Metrics[i].Query == "" {
			t.Errorf("%s: query %q: %v", builtin.Metrics[i].Name, builtin.Metrics[i].Query, err)
		}
		if _, err := p.ParseExpr(builtin.Metrics[i].SampleTime); err != nil || builtin.Metrics[i].SampleTime == "" {
			t.Errorf("%s: sample time %q: %v", builtin.Metrics[i].Name, builtin.Metrics[i].SampleTime, err)
		}

		builtin.Metrics[i].Query, builtin.Metrics[i].SampleTime = "", ""
	}

	if !reflect.DeepEqual(builtin, withRules) {
		t.Errorf("the built-in policy is\n%+v, that with recording rules\n%+v", builtin, withRules)
	}
	if len(builtin.Warnings) > 0 || len(builtin.Limits) != len(builtin.Metrics) {
		t.Errorf("%+v", builtin)
	}
}

// TestGocranePolicy checks that the example for clusters migrated from gocrane has its metrics, limits and weights,
// and the marks of the built-in policy.
func TestGocranePolicy(t *testing.T) {
	content, err := os.ReadFile("../../../examples/dynamic-scheduler-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}

	got, err := policyfile.Decode(content)
	if err != nil {
		t.Fatal(err)
	}

	builtin, err := policyfile.Builtin()
	if err != nil {
		t.Fatal(err)
	}

	spec := nodeload.GocraneSpec()
	spec.Marks = builtin.Marks
	if want, err := nodeload.NewPolicy(spec); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the example is\n%+v, want\n%+v, %v", got, want, err)
	}
}

// TestRecordingRulesServeThePolicies checks that every metric of the policies is recorded, including gocrane's.
func TestRecordingRulesServeThePolicies(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Expr string }
		}
	}

	if err := yaml.Unmarshal(shipped(t, "recording-rules.yaml"), &file); err != nil {
		t.Fatal(err)
	}

	policy, err := policyfile.Decode(shipped(t, "policy-recording-rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	recorded := map[string]bool{}
	p := parser.NewParser(parser.Options{})
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			recorded[r.Record] = true
			if _, err := p.ParseExpr(r.Expr); err != nil {
				t.Errorf("%s: %v", r.Record, err)
			}
		}
	}

	for _, m := range append(policy.Metrics, nodeload.GocraneSpec().Metrics...) {
		if !recorded[m.Name] {
			t.Errorf("%s is read and not recorded", m.Name)
		}

		m.Resource = nodeload.ResourceOf(m.Name)

		if !recorded[m.DefaultSampleTime()] {
			t.Errorf("%s, with the sample times of %s, is read and not recorded", m.DefaultSampleTime(), m.Name)
		}
	}
}
