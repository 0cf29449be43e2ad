// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// apiPage renders every field of the kinds that are defined in a folder.
func apiPage(t *testing.T, dir string) string {
	t.Helper()

	paths, err := filepath.Glob(filepath.Join(root, dir, "*.crane.io_*.yaml"))
	if err != nil || len(paths) < 5 {
		t.Fatalf("the folder has %d definitions, want 5 or more: %v", len(paths), err)
	}

	// Analytics is kept for objects of gocrane: the fields that it shares are listed with RecommendationRule.
	slices.SortStableFunc(paths, func(a, b string) int {
		return strings.Count(a, "_analytics") - strings.Count(b, "_analytics")
	})

	var b strings.Builder
	b.WriteString("# Fields of the API\n\nLook up any field of Crane's kinds: its type, default, range and meaning. " + generatedBy +
		"\n[Kinds](api-kinds.md) lists the kinds and what the API server and the webhooks check.\n\nA field in bold is required. `[]` is an element of a list, `{}` a value of a map. Fields of a type that " +
		"occurs again are listed where it occurs first.\n")

	tables := fieldTables{listed: map[string]string{}}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(content, &crd); err != nil {
			t.Fatalf("parsing %s: %v", path, err)
		}

		for _, version := range crd.Spec.Versions {
			schema := version.Schema.OpenAPIV3Schema
			fmt.Fprintf(&b, "\n## %s\n\n`%s/%s`, %s.\n\n%s\n\n| field | type | default | range | description |\n| --- | --- | --- | --- | --- |\n",
				crd.Spec.Names.Kind, crd.Spec.Group, version.Name, strings.ToLower(string(crd.Spec.Scope)), cell(schema.Description))

			for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
				if name != "apiVersion" && name != "kind" && name != "metadata" {
					tables.writeField(&b, crd.Spec.Names.Kind, name, schema.Properties[name], slices.Contains(schema.Required, name))
				}
			}
		}
	}

	return b.String()
}

// fieldTables writes the rows of fields. A type with the same fields as an earlier one refers to that.
type fieldTables struct {
	// listed is the place where the fields of a type are listed, by the JSON of its schema without the description.
	listed map[string]string
}

// writeField writes the row of a field of a kind, and those of the fields inside of it.
func (f *fieldTables) writeField(b *strings.Builder, kind, path string, s apiextensionsv1.JSONSchemaProps, required bool) {
	name := code(path)
	if required {
		name = "**" + name + "**"
	}

	standard := ""
	if s.Default != nil {
		standard = code(string(s.Default.Raw))
	}

	inner := s
	innerPath := path
	switch {
	case s.Items != nil && s.Items.Schema != nil:
		inner = *s.Items.Schema
		innerPath += "[]"
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		inner = *s.AdditionalProperties.Schema
		innerPath += "{}"
	}

	description := cell(s.Description)
	reference := f.reference(kind, innerPath, inner)
	if reference != "" {
		description = strings.TrimSpace(description + " Fields: " + reference + ".")
	}

	fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", name, schemaType(s), standard, schemaRange(s), description)
	if reference != "" {
		return
	}

	for _, property := range slices.Sorted(maps.Keys(inner.Properties)) {
		f.writeField(b, kind, innerPath+"."+property, inner.Properties[property], slices.Contains(inner.Required, property))
	}
}

// reference returns a link to the earlier place of a type's fields. It is empty, and the place is remembered, for a type that is new, and
// for one with fewer fields than a reference saves.
func (f *fieldTables) reference(kind, path string, s apiextensionsv1.JSONSchemaProps) string {
	const leastFields = 2
	if len(s.Properties) < leastFields {
		return ""
	}

	// The description belongs to the field, and a default or a rule is in its row.
	fingerprint, err := json.Marshal(apiextensionsv1.JSONSchemaProps{Properties: s.Properties, Required: s.Required})
	if err != nil {
		panic(err) // The schema was just parsed.
	}

	place, ok := f.listed[string(fingerprint)]
	if ok {
		return place
	}

	f.listed[string(fingerprint)] = fmt.Sprintf("[%s of %s](#%s)", code(path), kind, strings.ToLower(kind))
	return ""
}

func schemaType(s apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.XIntOrString:
		return "integer or string"
	case s.Type == "array" && s.Items != nil && s.Items.Schema != nil:
		return "list of " + schemaType(*s.Items.Schema)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map to " + schemaType(*s.AdditionalProperties.Schema)
	case s.Format != "" && s.Type == "string":
		return s.Format
	}

	return s.Type
}

// schemaRange lists what a schema allows.
func schemaRange(s apiextensionsv1.JSONSchemaProps) string {
	var parts []string
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			var value any
			if err := json.Unmarshal(v.Raw, &value); err != nil {
				value = string(v.Raw)
			}
			if value == "" {
				value = `""`
			}

			values = append(values, code(fmt.Sprint(value)))
		}

		parts = append(parts, strings.Join(values, ", "))
	}

	if s.Minimum != nil {
		parts = append(parts, fmt.Sprintf("%s %v", map[bool]string{true: ">", false: "≥"}[s.ExclusiveMinimum], *s.Minimum))
	}
	if s.Maximum != nil {
		parts = append(parts, fmt.Sprintf("%s %v", map[bool]string{true: "<", false: "≤"}[s.ExclusiveMaximum], *s.Maximum))
	}

	for _, length := range []struct {
		value *int64
		text  string
	}{
		{s.MinLength, "at least %d characters"},
		{s.MaxLength, "at most %d characters"},
		{s.MinItems, "at least %d elements"},
		{s.MaxItems, "at most %d elements"},
		{s.MinProperties, "at least %d keys"},
		{s.MaxProperties, "at most %d keys"},
	} {
		if length.value != nil {
			parts = append(parts, fmt.Sprintf(length.text, *length.value))
		}
	}

	if s.Pattern != "" {
		parts = append(parts, "pattern "+code(s.Pattern))
	}

	for _, rule := range s.XValidations {
		if rule.Message != "" {
			parts = append(parts, cell(rule.Message))
		}
	}

	return strings.Join(parts, "; ")
}
