// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"io/fs"
	"os"
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"crane.io/crane/config"
)

// definitions returns the decoded definitions by the name of their file.
func definitions(t *testing.T) map[string]map[string]any {
	t.Helper()

	files, err := fs.Glob(config.CRDs, "crd/*.yaml")
	if err != nil {
		t.Fatal(err)
	}

	result := map[string]map[string]any{}
	for _, file := range files {
		data, err := config.CRDs.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		var crd map[string]any
		if err := yaml.UnmarshalStrict(data, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}

		result[path.Base(file)] = crd
	}

	return result
}

// TestEveryFieldIsDescribed walks the schemas: kubectl explain has a text for each field.
func TestEveryFieldIsDescribed(t *testing.T) {
	for file, crd := range definitions(t) {
		described := 0
		spec := crd["spec"].(map[string]any)
		kind := spec["names"].(map[string]any)["kind"].(string)
		for _, version := range spec["versions"].([]any) {
			root := version.(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
			walk(root, kind, func(path string, schema map[string]any) {
				if description, _ := schema["description"].(string); description != "" {
					described++
				} else {
					t.Errorf("%s: no description: %s", file, path)
				}
			})
		}

		if described < 5 {
			t.Errorf("%s: %d descriptions", file, described)
		}
	}
}

// walk visits a schema and each property below it, metadata apart.
func walk(schema map[string]any, path string, visit func(path string, schema map[string]any)) {
	visit(path, schema)
	walkProperties(schema, path, visit)

	for _, key := range []string{"items", "additionalProperties"} {
		if nested, ok := schema[key].(map[string]any); ok {
			walkProperties(nested, path+"[]", visit)
		}
	}
}

func walkProperties(schema map[string]any, path string, visit func(path string, schema map[string]any)) {
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		if name != "metadata" {
			walk(property.(map[string]any), path+"."+name, visit)
		}
	}
}

// TestKustomizationListsTheDefinitions compares crd/kustomization.yaml with the files beside it.
func TestKustomizationListsTheDefinitions(t *testing.T) {
	data, err := os.ReadFile("crd/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var kustomization struct {
		Resources []string `json:"resources"`
	}

	if err := yaml.Unmarshal(data, &kustomization); err != nil {
		t.Fatal(err)
	}

	listed := map[string]bool{}
	for _, name := range kustomization.Resources {
		listed[name] = true
	}

	files := map[string]bool{}
	for name := range definitions(t) {
		files[name] = true
	}

	if diff := cmp.Diff(files, listed); diff != "" {
		t.Errorf("(-files +kustomization):\n%s", diff)
	}
}
