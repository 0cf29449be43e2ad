// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"strings"
	"testing"

	"crane.io/crane/internal/migrate"
	"crane.io/crane/test/integration/harness"
)

// TestKubectlCrane runs the verbs of gocrane's kubectl-crane with the flags that its users have in their scripts.
func TestKubectlCrane(t *testing.T) {
	f := newFixture(t)
	if err := harness.Install(t.Context(), f.control.Config(), "test", func(kind string) bool { return kind == "CustomResourceDefinition" }); err != nil {
		t.Fatal(err)
	}

	f.installation = &installation{owned: map[migrate.Ref]bool{}, uids: map[migrate.Ref]string{}}
	f.create("kubectl", false, namespaced("v1", "Namespace", "", "shop", nil))

	for _, name := range []string{"web", "db"} {
		f.create("craned", false, namespaced("analysis.crane.io/v1alpha1", "Recommendation", "shop", "rule-resource-"+name, map[string]any{
			"spec":   map[string]any{"type": map[string]string{"web": "Resource", "db": "Replicas"}[name], "adoptionType": "StatusAndAnnotation", "targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name}},
			"status": map[string]any{"change": "cpu 1 → 778m", "lastUpdateTime": "2026-05-01T00:00:00Z"},
		}))
	}

	const target = `[{"kind":"Deployment","apiVersion":"apps/v1"}]`
	for _, c := range []struct {
		args       []string
		code       int
		has, lacks string
	}{
		{args: []string{"recommend", "list"}, has: "rule-resource-web", lacks: "recommender"},
		{args: []string{"recommend", "list", "--namespace", "shop", "--type", "resource"}, has: "cpu 1 → 778m", lacks: "rule-resource-db"},
		{args: []string{"recommend", "list", "--namespace", "other"}, lacks: "rule-resource"},
		{args: []string{"recommend", "list", "--targetKind", "StatefulSet"}, lacks: "rule-resource"},
		{args: []string{"recommend", "adopt"}, code: 2, has: "--name"},
		{args: []string{"recommend", "adopt", "--name", "rule-resource-web", "-n", "shop", "--dry-run=All"}, code: 0, lacks: "set to Auto"},
		{args: []string{"recommend", "adopt", "--name", "rule-resource-web", "-n", "shop"}, has: "set to Auto"},
		{args: []string{"recommend", "adopt", "--name", "gone", "-n", "shop"}, code: 3, has: "gone"},
		{args: []string{"recommend", "trigger", "--name", "gone", "-n", "shop"}, code: 1, has: "not found"},
		{args: []string{"recommend", "trigger", "--name", "rule-resource-db", "-n", "shop", "--dry-run"}, has: "craned evaluates it again"},
		{args: []string{"recommend", "trigger", "--name", "rule-resource-web", "-n", "shop"}, has: "craned evaluates it again"},
		{args: []string{"view-recommend", "--selector", `{"apiVersion":"apps/v1","kind":"Deployment","name":"web","namespace":"shop"}`}, has: "rule-resource-web", lacks: "rule-resource-db"},
		{args: []string{"view-recommend", "--selector", "web"}, code: 2, has: "want a target in JSON"},
		{args: []string{"recommendation-rule", "create", "--target", target, "--run-interval", "4h", "--dry-run=All", "--name", "checked"}, has: "created"},
		{args: []string{"rr", "create", "--namespace", "Any", "--recommender", "Resource,Replicas", "--target", target, "--runInterval", "4h", "--name", "mine"}, has: "recommendation rule mine created"},
		{args: []string{"rr", "create", "--namespace", "shop", "--target", target, "--run-interval", "4h"}, has: "recommendation-deployment-resource-4h-"},
		{args: []string{"rr", "create", "--target", "Deployment", "--run-interval", "4h"}, code: 2, has: "want a list of selectors"},
		{args: []string{"rr", "create", "--target", target, "--run-interval", "often"}, code: 2, has: "--run-interval"},
		{args: []string{"rr", "list", "--recommender", "replicas"}, has: "mine", lacks: "checked"},
		{args: []string{"recommendation-rule", "list", "--name", "mine"}, has: "Any", lacks: "recommendation-deployment"},
	} {
		out, errOut, code := f.crane(f.control.Kubeconfig(), c.args...)
		if text := out + errOut; code != c.code || !strings.Contains(text, c.has) || c.lacks != "" && strings.Contains(text, c.lacks) {
			t.Errorf("crane %v: exit code %d, want %d with %q and without %q: %s", c.args, code, c.code, c.has, c.lacks, text)
		}
	}

	web := f.get("analysis.crane.io/v1alpha1", "Recommendation", "shop", "rule-resource-web")
	db := f.get("analysis.crane.io/v1alpha1", "Recommendation", "shop", "rule-resource-db")
	if field(web, "spec", "adoptionType") != "Auto" || web.GetAnnotations()["analysis.crane.io/run-number"] != "0" || db.GetAnnotations()["analysis.crane.io/run-number"] != "" {
		t.Errorf("web %v, db %v, want web on Auto with run number 0, db untouched", web.Object, db.GetAnnotations())
	}
	if help, _, _ := f.crane(f.control.Kubeconfig(), "--help"); strings.Contains(help, "view-recommend") {
		t.Errorf("the help lists the aliases, want none: %s", help)
	}
}
