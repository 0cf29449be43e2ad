// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prediction_test

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// TestExamplesOfGocrane checks that the predictions of gocrane's examples become ready where their targets have a history.
func TestExamplesOfGocrane(t *testing.T) {
	paths, err := filepath.Glob("../../../../shared/gocrane/examples/tsp-*.yaml")
	if err != nil || len(paths) == 0 {
		t.Skipf("gocrane's examples are not beside the repository: %v", err)
	}

	prometheus, _ := servePrometheus(t)
	startCraned(t, prometheus.URL())

	c := newClient(t)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		tsp := &predictionv1alpha1.TimeSeriesPrediction{}
		if err := yaml.UnmarshalStrict(data, tsp); err != nil {
			t.Fatal(err)
		}

		harness.Create(t, c, tsp)
		t.Run(filepath.Base(path), func(t *testing.T) {
			ready := await(t, c, client.ObjectKeyFromObject(tsp), ready, metav1.ConditionTrue, predictionv1alpha1.ReasonPredictSucceed)
			if len(ready.Status.PredictionMetrics) != 2 {
				t.Errorf("status %+v, want two metrics", ready.Status)
			}

			for _, m := range ready.Status.PredictionMetrics {
				samples := m.Prediction[0].Samples
				if horizon := samples[len(samples)-1].Timestamp - m.UpdateTime.Unix(); horizon < predictionv1alpha1.MinPredictionWindowSeconds {
					t.Errorf("%s is forecast for %d s, want %d or more", m.ResourceIdentifier, horizon, predictionv1alpha1.MinPredictionWindowSeconds)
				}
			}
		})
	}
}
