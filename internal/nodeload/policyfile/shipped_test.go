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
		t.Fatalf("reading config/nodeload/%s: %v", name, err)
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
		t.Fatalf("decoding configmap.yaml: %v", err)
	}

	file, err := os.ReadFile("default.yaml")
	if err != nil {
		t.Fatalf("reading default.yaml: %v", err)
	}

	_, text, _ := strings.Cut(string(file), "#\n")
	if object.Data["policy.yaml"] != text {
		t.Error("config/nodeload/configmap.yaml differs from internal/nodeload/policyfile/default.yaml, want the same policy")
	}

	builtin, err := policyfile.Builtin()
	if err != nil {
		t.Fatalf("Builtin: %v, want no error", err)
	}

	withRules, err := policyfile.Decode(shipped(t, "policy-recording-rules.yaml"))
	if err != nil {
		t.Fatalf("Decode of policy-recording-rules.yaml: %v, want no error", err)
	}

	p := parser.NewParser(parser.Options{})
	for i := range builtin.Metrics {
		if _, err := p.ParseExpr(builtin.Metrics[i].Query); err != nil || builtin.Metrics[i].Query == "" {
			t.Errorf("query %q of %s: %v, want PromQL", builtin.Metrics[i].Query, builtin.Metrics[i].Name, err)
		}
		if _, err := p.ParseExpr(builtin.Metrics[i].SampleTime); err != nil || builtin.Metrics[i].SampleTime == "" {
			t.Errorf("sample time %q of %s: %v, want PromQL", builtin.Metrics[i].SampleTime, builtin.Metrics[i].Name, err)
		}

		builtin.Metrics[i].Query = ""
		builtin.Metrics[i].SampleTime = ""
	}

	if !reflect.DeepEqual(builtin, withRules) {
		t.Errorf("the policy with recording rules is\n%+v, want the built-in one\n%+v", withRules, builtin)
	}
	if len(builtin.Warnings) > 0 || len(builtin.Limits) != len(builtin.Metrics) {
		t.Errorf("Builtin() = %+v, want no warnings and a limit for each metric", builtin)
	}
}

// TestGocranePolicy checks that the example for clusters migrated from gocrane has its metrics, limits and weights,
// and the marks of the built-in policy.
func TestGocranePolicy(t *testing.T) {
	content, err := os.ReadFile("../../../examples/dynamic-scheduler-policy.yaml")
	if err != nil {
		t.Fatalf("reading the example: %v", err)
	}

	got, err := policyfile.Decode(content)
	if err != nil {
		t.Fatalf("Decode of the example: %v, want no error", err)
	}

	builtin, err := policyfile.Builtin()
	if err != nil {
		t.Fatalf("Builtin: %v, want no error", err)
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
		t.Fatalf("decoding recording-rules.yaml: %v", err)
	}

	policy, err := policyfile.Decode(shipped(t, "policy-recording-rules.yaml"))
	if err != nil {
		t.Fatalf("Decode of policy-recording-rules.yaml: %v, want no error", err)
	}

	recorded := map[string]bool{}
	p := parser.NewParser(parser.Options{})
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			recorded[r.Record] = true
			if _, err := p.ParseExpr(r.Expr); err != nil {
				t.Errorf("rule %s is %q: %v, want PromQL", r.Record, r.Expr, err)
			}
		}
	}

	for _, m := range append(policy.Metrics, nodeload.GocraneSpec().Metrics...) {
		if !recorded[m.Name] {
			t.Errorf("no rule records %s, want one", m.Name)
		}

		m.Resource = nodeload.ResourceOf(m.Name)

		if !recorded[m.DefaultSampleTime()] {
			t.Errorf("no rule records %s, the sample times of %s, want one", m.DefaultSampleTime(), m.Name)
		}
	}
}
