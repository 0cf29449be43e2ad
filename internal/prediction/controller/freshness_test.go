// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/prediction/predictor"
)

// TestReadyStays checks that a prediction whose samples arrive at any step, also a longer one than the window, stays ready, without a write at
// each reconcile.
func TestReadyStays(t *testing.T) {
	for _, step := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour} {
		for _, window := range []int32{60, 600, 3600} {
			b := newBench(t)
			b.tsp.Spec.PredictionWindowSeconds = window
			if err := b.Client.Update(t.Context(), b.tsp); err != nil {
				t.Fatal(err)
			}

			b.predictor.step = step
			for range 3 * int(time.Hour/(30*time.Second)) {
				b.predictor.status = predictor.Status{State: predictor.Ready, Step: step, LastSample: b.clock.Now().Truncate(step).Add(-step), FirstSample: b.clock.Now().Add(-240 * time.Hour)}
				tsp, _ := b.reconcile(t)
				c := meta.FindStatusCondition(tsp.Status.Conditions, predictionv1alpha1.ConditionReady)
				if c.Status != "True" {
					t.Fatalf("step %s, window %d s: Ready at %s is %s (%s), want True", step, window, b.clock.Now(), c.Status, c.Message)
				}

				b.clock.Step(30 * time.Second)
			}

			longest := max(step, time.Duration(window)*time.Second)
			if most := int(3*time.Hour/min(longest, time.Duration(window)*time.Second)) + 2; b.writes > most {
				t.Errorf("step %s, window %d s: %d writes in three hours, want at most %d", step, window, b.writes, most)
			}
		}
	}
}

// TestReasonWithoutForecast checks that a metric that is not ready has a reason that is true.
func TestReasonWithoutForecast(t *testing.T) {
	b := newBench(t)
	b.predictor.status = predictor.Status{State: predictor.Empty, Unusable: 2}
	tsp, _ := b.reconcile(t)
	if got := tsp.Status.PredictionMetrics[0].Reason; !strings.Contains(got, "2 series") || !strings.Contains(got, "negative") || strings.Contains(got, "no series") {
		t.Errorf("reason of negative series = %q, want it to say that the 2 series have no amounts", got)
	}

	b = newBench(t)
	b.predictor.status = predictor.Status{State: predictor.Ready, Step: time.Minute, LastSample: b.clock.Now(), FirstSample: b.clock.Now().Add(-240 * time.Hour)}
	tsp, _ = b.reconcile(t)
	success := tsp.Status.PredictionMetrics[0].Reason

	b.predictor.series = 0
	b.clock.Step(3 * time.Hour)
	tsp, _ = b.reconcile(t)
	if m := tsp.Status.PredictionMetrics[0]; m.Ready || m.Reason == success || m.Reason == "" {
		t.Errorf("after the series are gone the metric is ready %v with the reason %q, want not ready and a reason", m.Ready, m.Reason)
	}
}
