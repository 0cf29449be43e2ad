// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// TestAlerts checks that the alerts are PromQL and read metrics that Crane has.
func TestAlerts(t *testing.T) {
	content, err := os.ReadFile("monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		t.Fatal(err)
	}
	reference, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics := 0
	for _, rule := range file.Groups[0].Rules {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
		if err != nil {
			t.Errorf("%s: %v", rule.Alert, err)
			continue
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if selector, ok := node.(*parser.VectorSelector); ok {
				metrics++
				if !strings.Contains(string(reference), "| `"+selector.Name+"` |") {
					t.Errorf("%s: no metric %s", rule.Alert, selector.Name)
				}
			}
			return nil
		})
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.For == "" {
			t.Errorf("%s: no severity, duration, summary or description", rule.Alert)
		}
	}
	if metrics == 0 {
		t.Error("no alert reads a metric")
	}
}
