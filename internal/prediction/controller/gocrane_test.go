// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/prediction/predictor"
)

// TestForecastOfGocrane checks that a forecast that gocrane left stays while the history is read, and is replaced as soon as there is one of Crane.
func TestForecastOfGocrane(t *testing.T) {
	now := time.Unix(1_770_000_000, 0)
	var samples []predictionv1alpha1.Sample
	for i := range 180 {
		samples = append(samples, predictionv1alpha1.Sample{Value: "1", Timestamp: now.Add(time.Duration(i) * time.Minute).Unix()})
	}

	tsp := &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: predictionv1alpha1.TimeSeriesPredictionSpec{PredictionWindowSeconds: 3600},
		Status: predictionv1alpha1.TimeSeriesPredictionStatus{
			PredictionMetrics: []predictionv1alpha1.PredictionMetricStatus{{ResourceIdentifier: "resource.cpu", Ready: true, Prediction: []predictionv1alpha1.MetricTimeSeries{{Samples: samples}}}},
			Conditions:        []metav1.Condition{{Type: predictionv1alpha1.ConditionReady, Status: metav1.ConditionTrue}},
		},
	}

	reading := metricState{identifier: "resource.cpu", status: predictor.Status{State: predictor.Pending}}
	d := newDecision(tsp, now)
	if kept := d.withoutNewForecast(reading); !kept.Ready || len(kept.Prediction) != 1 || kept.UpdateTime != nil {
		t.Errorf("the forecast of gocrane became %+v, want it kept without a time", kept)
	}

	tsp.Status.Conditions[0].ObservedGeneration = 2 // craned has written the status.
	read := metricState{identifier: "resource.cpu", status: predictor.Status{State: predictor.Ready}}
	if d := newDecision(tsp, now); !d.needsForecast([]metricState{read}) || d.needsForecast([]metricState{reading}) {
		t.Error("a forecast of gocrane needs a new one at the wrong time, want one when the history was read and not before")
	}

	tsp.Generation = 3 // The user went back to gocrane and returned.
	if kept := newDecision(tsp, now).withoutNewForecast(reading); !kept.Ready || len(kept.Prediction) != 1 {
		t.Errorf("after a return to gocrane its forecast became %+v, want it kept", kept)
	}

	updated := metav1.NewTime(now)
	tsp.Status.PredictionMetrics[0].UpdateTime = &updated // A forecast of Crane, and a user has changed the spec: it does not hold for this one.
	if kept := newDecision(tsp, now).withoutNewForecast(reading); len(kept.Prediction) != 0 {
		t.Errorf("a forecast of an earlier spec stays: %+v, want none", kept)
	}
}
