// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prediction_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/test/integration/harness"
	"crane.io/crane/test/metricstore"
	"crane.io/crane/test/nightly"
)

// storePredictions returns predictions of resources, of a selector and of an expression.
func storePredictions() []*predictionv1alpha1.TimeSeriesPrediction {
	zones := cpuOf("store-zones", "periodic", predictionv1alpha1.AlgorithmTypePercentile)
	zones.Spec.PredictionMetrics = append(zones.Spec.PredictionMetrics,
		predictionv1alpha1.PredictionMetric{
			ResourceIdentifier: "requests", Type: predictionv1alpha1.MetricQueryMetricType,
			MetricQuery: &predictionv1alpha1.MetricQuery{MetricName: "http_requests", QueryConditions: []predictionv1alpha1.QueryCondition{
				{Key: "zone", Operator: predictionv1alpha1.OperatorIn, Value: []string{"a", "b"}}, {Key: "path", Value: []string{`/x"}`}},
			}},
		},
		predictionv1alpha1.PredictionMetric{
			ResourceIdentifier: "zones", Type: predictionv1alpha1.ExpressionQueryMetricType,
			ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: "http_requests / 100"},
			Algorithm:       predictionv1alpha1.Algorithm{AlgorithmType: predictionv1alpha1.AlgorithmTypePercentile},
		})

	return []*predictionv1alpha1.TimeSeriesPrediction{
		cpuOf("store-periodic", "periodic", ""), cpuOf("store-dsp", "periodic", predictionv1alpha1.AlgorithmTypeDSP), zones,
	}
}

// forecasts runs craned on a store and returns the forecasts by prediction, metric and labels of the series.
func forecasts(t *testing.T, c client.Client, address string, flags ...string) map[string][]predictionv1alpha1.Sample {
	t.Helper()

	craned := startCraned(t, address, flags...)
	defer craned.Stop(t)

	out := map[string][]predictionv1alpha1.Sample{}
	for _, one := range storePredictions() {
		harness.Create(t, c, one)
	}

	for _, one := range storePredictions() {
		key := client.ObjectKeyFromObject(one)
		tsp := await(t, c, key, ready, metav1.ConditionTrue, predictionv1alpha1.ReasonPredictSucceed)
		for _, m := range tsp.Status.PredictionMetrics {
			for _, s := range m.Prediction {
				var labels []string
				for _, l := range s.Labels {
					labels = append(labels, l.Name+"="+l.Value)
				}
				out[one.Name+" "+m.ResourceIdentifier+" "+strings.Join(labels, ",")] = s.Samples
			}
		}

		if err := c.Delete(t.Context(), tsp); err != nil {
			t.Fatal(err)
		}

		eventually(t, "deletion of "+one.Name, func(ctx context.Context) error {
			err := c.Get(ctx, key, tsp)
			if apierrors.IsNotFound(err) {
				return nil
			}

			return cmp.Or(err, errors.New("it exists"))
		})
	}

	return out
}

// TestForecastsOnVictoriaMetrics checks that craned forecasts the same from an installed victoria-metrics, with the defaults that its users
// have, as from Prometheus.
func TestForecastsOnVictoriaMetrics(t *testing.T) {
	testForecastsOn(t, metricstore.VictoriaMetricsWithDefaults)
}

// TestForecastsOnThanos checks that craned forecasts the same from a querier of Thanos as from Prometheus.
func TestForecastsOnThanos(t *testing.T) {
	testForecastsOn(t, metricstore.ThanosQuerier)
}

// TestForecastsOnMimir checks that craned forecasts the same from the history of a tenant of Mimir as from Prometheus.
func TestForecastsOnMimir(t *testing.T) {
	nightly.Only(t)
	testForecastsOn(t, metricstore.Mimir, metricstore.TenantFlag)
}

func testForecastsOn(t *testing.T, startStore metricstore.Start, flags ...string) {
	t.Helper()

	c := newClient(t)
	prometheus, _ := servePrometheus(t)
	want := forecasts(t, c, prometheus.URL())
	w := historyOf(time.Now().Truncate(scrape))

	got := forecasts(t, c, startStore(t, w.grid, w.all), flags...)
	if len(want) < 5 || len(got) != len(want) {
		t.Errorf("%d forecasts, want %d as of Prometheus, 5 or more", len(got), len(want))
	}

	worst, compared := 0.0, 0
	for name, samples := range want {
		at := map[int64]float64{}
		for _, s := range got[name] {
			at[s.Timestamp] = value(t, s)
		}

		n := 0
		for _, s := range samples {
			other, ok := at[s.Timestamp]
			if !ok {
				continue // The second craned started later.
			}

			n++
			worst = max(worst, math.Abs(other/value(t, s)-1))
		}

		compared += n

		if n < len(samples)/2 {
			t.Errorf("%s: %d of %d samples can be compared, want half or more", name, n, len(samples))
		}
	}

	// A forecast of both is from other samples: the second craned started later.
	t.Logf("%d samples of %d forecasts differ by %.3f %% at most", compared, len(want), 100*worst)

	if worst > 0.02 {
		t.Errorf("forecasts differ by %.3f %%, want at most 2 %%", 100*worst)
	}
}
