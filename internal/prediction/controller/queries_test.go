// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

func newExpressionPrediction(name string, metrics int, expression string) *predictionv1alpha1.TimeSeriesPrediction {
	tsp := &predictionv1alpha1.TimeSeriesPrediction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", Generation: 1}}
	for i := range metrics {
		tsp.Spec.PredictionMetrics = append(tsp.Spec.PredictionMetrics, predictionv1alpha1.PredictionMetric{
			ResourceIdentifier: fmt.Sprint("m", i), Type: predictionv1alpha1.ExpressionQueryMetricType,
			ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: expression},
		})
	}

	return tsp
}

// TestExpressionsOfOnePredictionAreLimited: the expressions of an object are parsed up to a total length, also those that metricQuery builds.
func TestExpressionsOfOnePredictionAreLimited(t *testing.T) {
	long := "a" + strings.Repeat("+a", 4095) // 8191 bytes
	for name, tsp := range map[string]*predictionv1alpha1.TimeSeriesPrediction{
		"expressions": newExpressionPrediction("e", 100, long),
		"labels": func() *predictionv1alpha1.TimeSeriesPrediction {
			p := newExpressionPrediction("l", 100, "")
			for i := range p.Spec.PredictionMetrics {
				m := &p.Spec.PredictionMetrics[i]
				m.Type = predictionv1alpha1.MetricQueryMetricType
				m.ExpressionQuery = nil
				m.MetricQuery = &predictionv1alpha1.MetricQuery{MetricName: "a", QueryConditions: []predictionv1alpha1.QueryCondition{
					{Key: "k", Operator: predictionv1alpha1.OperatorIn, Value: []string{strings.Repeat("v", 8189)}},
				}}
			}

			return p
		}(),
	} {
		accepted := 0
		for i, q := range queriesOf(tsp, testSelector(t), Isolation{}) {
			switch {
			case q.err == nil:
				accepted++
			case i < 8 || !strings.Contains(q.err.Error(), "65536 bytes in total"):
				t.Fatalf("%s: metric %d has error %v, want one of the total size after the first 8", name, i, q.err)
			}
		}

		if accepted != 8 {
			t.Errorf("%s: %d metrics of 8191 bytes are accepted, want 8", name, accepted)
		}
	}
}

// TestQueriesAreParsedOnce: an evaluation of an unchanged object costs no parsing; a change, a new object of the name and a deleted one do.
func TestQueriesAreParsedOnce(t *testing.T) {
	var cache queryCache
	parsed := 0
	get := func(tsp *predictionv1alpha1.TimeSeriesPrediction) []specQuery {
		return cache.get(tsp, func() []specQuery {
			parsed++
			return queriesOf(tsp, testSelector(t), Isolation{Enabled: true, Label: "namespace"})
		})
	}

	expect := func(what string, want int, tsp *predictionv1alpha1.TimeSeriesPrediction) {
		t.Helper()

		if got := get(tsp); parsed != want || got[0].query.Expression != tsp.Spec.PredictionMetrics[0].ExpressionQuery.Expression+`{namespace="shop"}` {
			t.Errorf("%s: parsed %d times, want %d: %+v", what, parsed, want, got)
		}
	}

	a := newExpressionPrediction("a", 1, "up")
	expect("first", 1, a)
	expect("again", 1, a)
	a = newExpressionPrediction("a", 1, "down")
	a.Generation = 2
	expect("changed", 2, a)

	a = newExpressionPrediction("a", 1, "left")
	a.UID, a.Generation = "2", 2
	expect("replaced", 3, a)
	expect("other name", 4, newExpressionPrediction("b", 1, "up"))
	cache.forget(client.ObjectKeyFromObject(a))
	expect("forgotten", 5, a)

	if len(cache.byName) != 2 {
		t.Errorf("the cache has %d predictions, want 2", len(cache.byName))
	}
}
