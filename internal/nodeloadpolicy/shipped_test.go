// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeloadpolicy_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"crane.io/crane/config"
	"crane.io/crane/internal/nodeloadpolicy"
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

// TestShippedPolicies: the ConfigMap holds the built-in policy to the letter, its queries are PromQL, and limits, weights
// and periods are gocrane's.
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
		t.Error("config/nodeload/configmap.yaml does not hold internal/nodeloadpolicy/default.yaml")
	}
	builtin, err := nodeloadpolicy.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	withRules, err := nodeloadpolicy.Decode(shipped(t, "policy-recording-rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	spec := nodeload.GocraneSpec()
	spec.Marks = builtin.Marks
	want, err := nodeload.NewPolicy(spec)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(withRules, want) {
		t.Errorf("the policy with recording rules is\n%+v, want\n%+v", withRules, want)
	}
	p := parser.NewParser(parser.Options{})
	for i := range builtin.Metrics {
		if _, err := p.ParseExpr(builtin.Metrics[i].Query); err != nil || builtin.Metrics[i].Query == "" {
			t.Errorf("%s: query %q: %v", builtin.Metrics[i].Name, builtin.Metrics[i].Query, err)
		}
		builtin.Metrics[i].Query = ""
	}
	if !reflect.DeepEqual(builtin, want) {
		t.Errorf("the built-in policy is\n%+v, want\n%+v", builtin, want)
	}
}

// TestRecordingRulesServeThePolicy: every metric that the policy reads is recorded.
func TestRecordingRulesServeThePolicy(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Expr string }
		}
	}
	if err := yaml.Unmarshal(shipped(t, "recording-rules.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	policy, err := nodeloadpolicy.Decode(shipped(t, "policy-recording-rules.yaml"))
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
	for _, m := range policy.Metrics {
		if !recorded[m.Name] {
			t.Errorf("%s is read and not recorded", m.Name)
		}
	}
}
