// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// definition returns the definition of a file as the API server reads it.
func definition(t *testing.T, file string) *apiextensions.CustomResourceDefinition {
	t.Helper()

	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var versioned apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(raw, &versioned); err != nil {
		t.Fatalf("parsing %s: %v", file, err)
	}

	apiextensionsv1.SetDefaults_CustomResourceDefinition(&versioned)
	var out apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&versioned, &out, nil); err != nil {
		t.Fatalf("converting %s: %v", file, err)
	}

	return &out
}

// TestDefinitionsAreAccepted checks that the API server accepts each definition: also that its rules do not cost more than it allows.
func TestDefinitionsAreAccepted(t *testing.T) {
	files, err := filepath.Glob("crd/*.crane.io_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("definitions %v: %v, want some", files, err)
	}

	for _, file := range files {
		for _, problem := range validation.ValidateCustomResourceDefinition(t.Context(), definition(t, file)) {
			// The API server sets the status.
			if !strings.HasPrefix(problem.Field, "status.") {
				t.Errorf("%s is refused: %v, want the API server to accept it", file, problem)
			}
		}
	}
}

// TestNamesOfTargets checks that names of targets which would control a terminal, a shell or a query are refused, and that others are not.
func TestNamesOfTargets(t *testing.T) {
	for kind, field := range map[string]string{
		"analysis.crane.io_recommendations":                      "targetRef",
		"autoscaling.crane.io_effectivehorizontalpodautoscalers": "scaleTargetRef",
		"autoscaling.crane.io_effectiveverticalpodautoscalers":   "targetRef",
		"autoscaling.crane.io_substitutes":                       "substituteTargetRef",
		"prediction.crane.io_timeseriespredictions":              "targetRef",
	} {
		versions := definition(t, "crd/"+kind+".yaml")
		props := versions.Spec.Validation
		if props == nil {
			t.Fatalf("%s has no common schema", kind)
		}

		target := props.OpenAPIV3Schema.Properties["spec"].Properties[field]
		structural, err := schema.NewStructural(&target)
		if err != nil {
			t.Fatalf("schema of %s: %v", kind, err)
		}

		accepts := func(name, targetKind string) bool {
			object := map[string]any{"name": name, "kind": targetKind, "apiVersion": "apps/v1"}
			problems, _ := cel.NewValidator(structural, false, celconfig.PerCallLimit).Validate(t.Context(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
			return len(problems) == 0
		}

		for _, name := range []string{"web", "web.v2", "system:node:a", "a-0", "A_b"} {
			if !accepts(name, "Deployment") {
				t.Errorf("%s refuses the target %q, want it accepted", kind, name)
			}
		}

		for _, name := range []string{"web\x1b[2J", "web\nForged", "a\u202e", "$(reboot)", "--kubeconfig=x", "a b", "a;b", "a/b", `a"`, "é"} {
			if accepts(name, "Deployment") {
				t.Errorf("%s accepts the target %q, want it refused", kind, name)
			}
		}

		if accepts("web", "Deployment;id") || accepts("web", "a\u202e") {
			t.Errorf("%s accepts kinds that are no names, want them refused", kind)
		}
	}
}
