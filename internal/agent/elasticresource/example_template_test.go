// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"os"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/prediction/nodetemplate"
)

// TestExampleTemplate checks that the shipped template renders valid PromQL for a Node.
func TestExampleTemplate(t *testing.T) {
	content, err := os.ReadFile("../../../examples/noderesource-tsp-template.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var cm corev1.ConfigMap
	if err := yaml.UnmarshalStrict(content, &cm); err != nil {
		t.Fatal(err)
	}

	if cm.Name != predictionv1alpha1.NodeResourceTemplateConfigMap {
		t.Errorf("the ConfigMap's name is %s, want %s", cm.Name, predictionv1alpha1.NodeResourceTemplateConfigMap)
	}

	spec, err := nodetemplate.Render(cm.Data[predictionv1alpha1.NodeResourceTemplateKey], newNode())
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, ok := findIdentifier(&spec, name); !ok {
			t.Errorf("findIdentifier(%s) = false, want a metric", name)
		}
	}

	for _, m := range spec.PredictionMetrics {
		if _, err := parser.NewParser(parser.Options{}).ParseExpr(m.ExpressionQuery.Expression); err != nil {
			t.Errorf("parsing the expression of %s: %v\n%s", m.ResourceIdentifier, err, m.ExpressionQuery.Expression)
		}
		if !strings.Contains(m.ExpressionQuery.Expression, `(n1|10\\.0\\.0\\.1)(:\\d+)?`) {
			t.Errorf("%s has expression %s, want it to select the node's name and address", m.ResourceIdentifier, m.ExpressionQuery.Expression)
		}
		// The node's side excludes page cache.
		if strings.Contains(m.ExpressionQuery.Expression, "working_set") {
			t.Errorf("%s has expression %s, want no working set: it subtracts page cache", m.ResourceIdentifier, m.ExpressionQuery.Expression)
		}
	}
}
