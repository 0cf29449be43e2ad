// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestCustomResourceState checks that the configuration of kube-state-metrics reads fields that a Recommendation has.
func TestCustomResourceState(t *testing.T) {
	type source struct {
		Path           []string            `json:"path"`
		LabelsFromPath map[string][]string `json:"labelsFromPath"`
		ValueFrom      []string            `json:"valueFrom"`
		NilIsZero      bool                `json:"nilIsZero"`
	}

	var file struct {
		Kind string `json:"kind"`
		Spec struct {
			Resources []struct {
				GroupVersionKind struct{ Group, Version, Kind string } `json:"groupVersionKind"`
				MetricNamePrefix string                                `json:"metricNamePrefix"`
				LabelsFromPath   map[string][]string                   `json:"labelsFromPath"`
				Metrics          []struct {
					Name, Help string
					Each       struct {
						Type  string  `json:"type"`
						Info  *source `json:"info"`
						Gauge *source `json:"gauge"`
					} `json:"each"`
				} `json:"metrics"`
			} `json:"resources"`
		} `json:"spec"`
	}

	if err := yaml.UnmarshalStrict(readFile(t, "../../config/monitoring/kube-state-metrics.yaml"), &file); err != nil {
		t.Fatal(err)
	}

	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(readFile(t, "../../config/crd/analysis.crane.io_recommendations.yaml"), &crd); err != nil {
		t.Fatal(err)
	}

	resource := file.Spec.Resources[0]
	if k := resource.GroupVersionKind; k.Group != crd.Spec.Group || k.Version != crd.Spec.Versions[0].Name || k.Kind != crd.Spec.Names.Kind {
		t.Errorf("no kind %+v, want %s", k, crd.Spec.Names.Kind)
	}

	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	check := func(base, path []string) {
		if !hasField(schema, append(append([]string{}, base...), path...)) {
			t.Errorf("a Recommendation has no field %s, want it", strings.Join(append(base, path...), "."))
		}
	}

	for _, path := range resource.LabelsFromPath {
		check(nil, path)
	}

	for _, m := range resource.Metrics {
		from := m.Each.Info
		if from == nil {
			from = m.Each.Gauge
		}

		check(nil, from.Path)
		for _, path := range append([][]string{from.ValueFrom}, valuesOf(from.LabelsFromPath)...) {
			check(from.Path, path)
		}
	}
}

func valuesOf(m map[string][]string) [][]string {
	var out [][]string
	for _, v := range m {
		out = append(out, v)
	}

	return out
}

// hasField reports whether a schema has the field at a path; the items of a list are entered.
func hasField(schema *apiextensionsv1.JSONSchemaProps, path []string) bool {
	if schema.Items != nil {
		schema = schema.Items.Schema
	}

	if len(path) == 0 || path[0] == "metadata" {
		return true
	}

	next, ok := schema.Properties[path[0]]
	return ok && hasField(&next, path[1:])
}
