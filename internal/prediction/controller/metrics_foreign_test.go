// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/prediction/predictor"
)

// TestForecastOfAnotherNamespace checks that an object exports forecasts for targets of its own namespace alone, except in Crane's namespace, that a target
// without a namespace is one of the object's, and that values which are not finite are left out.
func TestForecastOfAnotherNamespace(t *testing.T) {
	m := NewMetrics(func(predictor.Key) predictor.Accuracy {
		return predictor.Accuracy{WAPE: math.NaN(), Coverage: math.NaN(), Skill: math.NaN()}
	}, "crane-system")
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	observe := func(namespace, targetNamespace, name string, values ...string) {
		tsp := target("Deployment", "", name)
		tsp.Namespace = namespace
		tsp.Name = name + "-" + targetNamespace
		tsp.Spec.TargetRef.Namespace = targetNamespace
		tsp.Spec.PredictionMetrics = []predictionv1alpha1.PredictionMetric{{ResourceIdentifier: "cpu"}}
		status := predictionv1alpha1.PredictionMetricStatus{}
		for _, value := range values {
			status.Prediction = append(status.Prediction, predictionv1alpha1.MetricTimeSeries{
				Samples: []predictionv1alpha1.Sample{{Timestamp: 60, Value: value}},
			})
		}
		m.observe(tsp, predictionv1alpha1.TimeSeriesPredictionStatus{PredictionMetrics: []predictionv1alpha1.PredictionMetricStatus{status}},
			[]metricState{{identifier: "cpu"}}, time.Unix(0, 0))
	}
	observe("shop", "shop", "web", "NaN", "0.5", "+Inf")
	observe("evil", "shop", "web", "99")
	observe("evil", "shop", "unpredicted", "99")
	observe("evil", "", "api", "1")
	observe("shop", "", "api", "2")
	observe("crane-system", "shop", "db", "3")
	observe("crane-system", "", "node-1", "4")

	const want = `# HELP crane_prediction_tsp Forecast for the current time; the maximum of several series.
# TYPE crane_prediction_tsp gauge
crane_prediction_tsp{algorithm="auto",resourceIdentifier="cpu",targetKind="Deployment",targetName="api",targetNamespace="evil"} 1
crane_prediction_tsp{algorithm="auto",resourceIdentifier="cpu",targetKind="Deployment",targetName="api",targetNamespace="shop"} 2
crane_prediction_tsp{algorithm="auto",resourceIdentifier="cpu",targetKind="Deployment",targetName="db",targetNamespace="shop"} 3
crane_prediction_tsp{algorithm="auto",resourceIdentifier="cpu",targetKind="Deployment",targetName="node-1",targetNamespace=""} 4
crane_prediction_tsp{algorithm="auto",resourceIdentifier="cpu",targetKind="Deployment",targetName="web",targetNamespace="shop"} 0.5
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "crane_prediction_tsp"); err != nil {
		t.Error(err)
	}
}
