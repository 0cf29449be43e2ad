// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/rightsize"
)

// TestDocumentedPolicy loads the example in docs/reference/sizing-policy.md as a policy file.
func TestDocumentedPolicy(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "sizing-policy.md"))
	if err != nil {
		t.Fatal(err)
	}

	_, rest, found := strings.Cut(string(page), "```yaml\n")
	example, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("the page has no example in YAML, want one")
	}

	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}

	set, err := loadPolicies(file)
	if err != nil {
		t.Fatal(err)
	}

	policy := set.Default
	if len(set.Rules) == 0 {
		t.Error("the example has no rules, want some")
	}
	if _, err := loadPolicy(file); err == nil || !strings.Contains(err.Error(), "rules are not supported here") {
		t.Errorf("loadPolicy of rules = %v, want that rules are not supported", err)
	}
	if policy.Name != "web" || policy.CPU.Method != rightsize.Percentile || policy.MinHistory != 72*time.Hour || len(policy.Specifications) != 2 {
		t.Errorf("policy of the rule = %+v, want web by percentile with 72h of history", policy)
	}
}

func TestLoadPolicyErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	for name, c := range map[string]struct{ policy, want string }{
		"unknown name":  {"gold", "want one of default"},
		"missing file":  {filepath.Join(dir, "none.yaml"), "none.yaml"},
		"a directory":   {dir, "is not a file"},
		"broken YAML":   {write("broken.yaml", "name: [a"), "broken.yaml"},
		"given twice":   {write("twice.yaml", "name: a\nname: b\n"), "twice.yaml"},
		"unknown field": {write("typo.json", `{"name":"a","cpu":{"flor":"1"}}`), "did you mean floor?"},
		"too large":     {write("large.yaml", strings.Repeat("#", maxInputFileBytes+1)), "at most"},
	} {
		if _, err := loadPolicy(c.policy); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v lacks %q", name, err, c.want)
		}
	}
}
