// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/prediction/predictor"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/scaling"
)

// scalingOf returns the evaluation that a metric of the spec requests; nil for none. It continues from the state in
// the status. Errors are written for users.
func scalingOf(tsp *predictionv1alpha1.TimeSeriesPrediction, m *predictionv1alpha1.PredictionMetric) (*predictor.Scaling, error) {
	s := m.Scaling
	if s == nil {
		return nil, nil
	}
	capacity, errCapacity := strconv.ParseFloat(string(s.PodCapacity), 64)
	target, errTarget := strconv.ParseFloat(string(s.Target), 64)
	if err := errors.Join(errCapacity, errTarget); err != nil {
		return nil, fmt.Errorf("scaling: podCapacity %q, target %q: want numbers", s.PodCapacity, s.Target)
	}
	out := &predictor.Scaling{
		Name: m.ResourceIdentifier,
		Plant: scaling.Plant{
			Capacity: capacity, Target: target, Lag: time.Duration(s.LagSeconds) * time.Second,
			StabilizationWindow: time.Duration(s.StabilizationSeconds) * time.Second,
		},
		Window: tsp.Spec.Window(),
	}
	for i := range tsp.Status.PredictionMetrics {
		if old := &tsp.Status.PredictionMetrics[i]; old.ResourceIdentifier == m.ResourceIdentifier && old.Scaling != nil {
			// An invalid state, or one of another version, starts the evaluation anew.
			out.State, _ = base64.StdEncoding.DecodeString(old.Scaling.Ledger)
		}
	}
	return out, nil
}

// choiceOf converts an evaluation into its API form.
func choiceOf(a predictor.Advice) *predictionv1alpha1.ScalingChoice {
	out := &predictionv1alpha1.ScalingChoice{
		Use: a.Use, LeadSeconds: int32(a.Lead / time.Second), Why: sentence(a.Reason), Ledger: base64.StdEncoding.EncodeToString(a.State),
	}
	if a.Use {
		out.Quantile, out.Fill = decimal(a.Level.Quantile, -1), decimal(a.Level.Utilization, -1)
		out.ExtraReplicas, out.SparedTime = decimal(a.ExtraCost, 3), decimal(a.SparedShortage, 2)
	}
	return out
}

func decimal(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// publishedValue returns the function that selects the published value of a step: the quantile chosen for scaling, or
// else the value that the algorithm publishes.
func publishedValue(f predictor.SeriesForecast, advice *predictor.Advice) func(forecast.Quantiles) float64 {
	if advice == nil || !advice.Use {
		return f.Published
	}
	return func(q forecast.Quantiles) float64 { return q.At(advice.Level.Quantile) }
}
