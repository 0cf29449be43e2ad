// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package findings_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/fallback"
	"crane.io/crane/internal/metrics/metricsserver"
)

// newCombinedSource returns data sources as listed by --datasource; only Prometheus has hourly figures.
func newCombinedSource(t *testing.T, config *rest.Config, with ...fallback.Source) metrics.Capabilities {
	t.Helper()

	present, err := metricsserver.New(config)
	if err != nil {
		t.Fatal(err)
	}

	all := append([]fallback.Source{{Name: "metricserver", Capabilities: present.Capabilities()}}, with...)
	return fallback.New(fallback.Config{Clock: clock.RealClock{}, Log: logr.Discard()}, all...).Capabilities()
}

// TestCombinedSources checks that recommenders use the first data source with hourly figures, and report if there is
// none.
func TestCombinedSources(t *testing.T) {
	c := newClient(t)
	found := map[string]string{
		"IdleNode": "empty", "Volume": "pv-orphan", "Service": "lb-orphan", "Unused": "forgotten", "Throttle": "tight", "Packing": "giant", "GPU": "untouched",
	}

	t.Run("with prometheus", func(t *testing.T) {
		startControllersOn(t, func(config *rest.Config) metrics.Capabilities {
			return newCombinedSource(t, config, fallback.Source{Name: "prom", Capabilities: newPrometheusSource(t, server.URL()).Capabilities()})
		})

		for recommender, kind := range recommendersByKind() {
			t.Run(recommender, func(t *testing.T) {
				r := createRule(t, c, recommender, kind)
				awaitReady(t, c, r, "RoundCompleted")

				got, exists := recommendations(t.Context(), t, c, r.Name)[found[recommender]]
				if !exists || got.Status.Action == "" || got.Status.Action == analysisv1alpha1.ActionNone {
					t.Errorf("%s has action %q, want one: %s", found[recommender], got.Status.Action, got.Status.Description)
				}
			})
		}
	})

	t.Run("without", func(t *testing.T) {
		startControllersOn(t, func(config *rest.Config) metrics.Capabilities { return newCombinedSource(t, config) })
		r := createRule(t, c, "Unused", "Deployment")
		if cond := awaitReady(t, c, r, "DataSourceFailed"); !strings.Contains(cond.Message, "needs Prometheus") {
			t.Errorf("message %q, want the need for Prometheus", cond.Message)
		}
	})
}

// TestSizingFromPrometheus checks the recommendations of Resource, Replicas and HPA for a workload with a daily wave.
func TestSizingFromPrometheus(t *testing.T) {
	c := newClient(t)
	startControllers(t, server.URL())
	byType := func(t *testing.T, recommender string) analysisv1alpha1.RecommendationStatus {
		t.Helper()

		r := createRule(t, c, recommender, "Deployment")
		awaitReady(t, c, r, "RoundCompleted")

		got, exists := recommendations(t.Context(), t, c, r.Name)["wave"]
		if !exists {
			t.Fatal("no recommendation of", recommender)
		}

		return got.Status
	}

	t.Run("Resource", func(t *testing.T) {
		s := byType(t, "Resource")
		if s.Action != analysisv1alpha1.ActionPatch || !strings.Contains(s.RecommendedValue, "containerName: app") || !strings.Contains(s.Description, "app: cpu 1 -> ") {
			t.Errorf("status %+v, want a patch of app from 1 CPU", s)
		}
	})

	t.Run("Replicas", func(t *testing.T) {
		// The 95th percentile of a wave up to 4 cores is just below it: 8 pods at half a core.
		if s := byType(t, "Replicas"); s.RecommendedInfo != `{"spec":{"replicas":8}}` || !strings.Contains(s.Description, "cpu needs 8 pods at 50 % of the requested 1 each") {
			t.Errorf("status %+v, want 8 pods at 50 %% of the request", s)
		}
	})

	t.Run("HPA", func(t *testing.T) {
		s := byType(t, "HPA")
		var e autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler
		if err := json.Unmarshal([]byte(s.RecommendedInfo), &e); err != nil || s.Action != analysisv1alpha1.ActionCreate ||
			e.Spec.MinReplicas == nil || *e.Spec.MinReplicas != 8 || !strings.Contains(s.Description, fmt.Sprintf("keep 8 to %d pods", e.Spec.MaxReplicas)) {
			t.Errorf("status %+v, %v, want an autoscaler with 8 pods or more", s, err)
		}
	})
}
