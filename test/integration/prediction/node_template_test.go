// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prediction_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// TestExpressionOfAnAgent checks that craned reads the template of the predictions of nodes, and sends no query of one that differs from it.
func TestExpressionOfAnAgent(t *testing.T) {
	prometheus, counts := servePrometheus(t)
	startCraned(t, prometheus.URL())
	c := newClient(t)
	template := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: predictionv1alpha1.NodeResourceTemplateConfigMap},
		Data: map[string]string{predictionv1alpha1.NodeResourceTemplateKey: "predictionWindowSeconds: 3600\npredictionMetrics:\n- resourceIdentifier: cpu\n" +
			"  type: ExpressionQuery\n  expressionQuery: {expression: 'sum(rate(node_cpu_seconds_total{instance=\"{{ .metadata.name }}\"}[5m]))'}\n" +
			"  algorithm: {algorithmType: auto}\n"},
	}

	tsp := &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: predictionv1alpha1.NodeResourcePrefix + "edge"},
		Spec: predictionv1alpha1.TimeSeriesPredictionSpec{
			TargetRef: &corev1.ObjectReference{Kind: "Node", Name: "edge"}, PredictionWindowSeconds: 3600,
			PredictionMetrics: []predictionv1alpha1.PredictionMetric{{
				ResourceIdentifier: "cpu", Type: predictionv1alpha1.ExpressionQueryMetricType,
				ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: "sum(container_cpu_usage_seconds_total)"},
				Algorithm:       predictionv1alpha1.Algorithm{AlgorithmType: predictionv1alpha1.AlgorithmTypeAuto},
			}},
		},
	}

	harness.Create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}, template, tsp)
	eventually(t, "the expression is refused", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(tsp), tsp); err != nil {
			return err
		}

		if text := message(tsp, ready); !strings.Contains(text, "is not what ConfigMap crane-system/noderesource-tsp-template yields") {
			return errors.New(text)
		}

		return nil
	})

	if histories, ranges := counts.counts(); histories+ranges > 0 {
		t.Errorf("%d queries of histories and %d others were sent, want none", histories, ranges)
	}
}
