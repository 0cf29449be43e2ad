// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/prediction/predictor"
	"crane.io/crane/pkg/scaling"
)

// TestChoiceOf checks the fields of status.predictionMetrics[].scaling: what was used on the past days is absent before anything was,
// and the level is absent where the forecast is not used.
func TestChoiceOf(t *testing.T) {
	for name, c := range map[string]struct {
		advice predictor.Advice
		want   predictionv1alpha1.ScalingChoice
	}{
		"learning": {
			predictor.Advice{Choice: scaling.Choice{Reason: "learning"}, Lead: time.Minute, State: []byte{1}},
			predictionv1alpha1.ScalingChoice{LeadSeconds: 60, Why: "learning", Ledger: "AQ=="},
		},
		"used": {
			predictor.Advice{Choice: scaling.Choice{
				Use: true, Level: scaling.PlainPlan(), Balance: scaling.Balance{ExtraCost: 0.0304, SparedShortage: 0.816},
				Actual: scaling.Balance{ExtraCost: 0.01, SparedShortage: 0.5}, Reason: "worth it",
			}},
			predictionv1alpha1.ScalingChoice{
				Use: true, Basis: "highs", Quantile: "0.5", Fill: "1", ExtraReplicas: "0.030", SparedTime: "0.82", ActualExtraReplicas: "0.010", ActualSparedTime: "0.50",
				Why: "worth it",
			},
		},
		"used before": {
			predictor.Advice{Choice: scaling.Choice{Actual: scaling.Balance{ExtraCost: -0.01}}},
			predictionv1alpha1.ScalingChoice{ActualExtraReplicas: "-0.010", ActualSparedTime: "0.00"},
		},
	} {
		if got := choiceOf(c.advice); !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, *got, c.want)
		}
	}
}

// TestScalingMetrics checks that what scaling ahead bought and cost is exported from the status while there is an account, without
// unreadable numbers, and goes with the object.
func TestScalingMetrics(t *testing.T) {
	m := NewMetrics(func(predictor.Key) predictor.Accuracy {
		return predictor.Accuracy{WAPE: math.NaN(), Coverage: math.NaN(), Skill: math.NaN()}
	}, "crane-system")

	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}

	tsp := target("Deployment", "", "web")
	tsp.Spec.PredictionMetrics = []predictionv1alpha1.PredictionMetric{{ResourceIdentifier: "cpu"}}
	names := []string{"crane_scaling_ahead_used", "crane_scaling_ahead_extra_replicas_ratio", "crane_scaling_ahead_spared_ratio"}
	observe := func(s *predictionv1alpha1.ScalingChoice) {
		m.observe(tsp, predictionv1alpha1.TimeSeriesPredictionStatus{PredictionMetrics: []predictionv1alpha1.PredictionMetricStatus{{Scaling: s}}},
			[]metricState{{identifier: "cpu"}}, time.Unix(0, 0))
	}

	check := func(want string) {
		t.Helper()

		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
			t.Error(err)
		}
	}

	const labels = `{name="web",namespace="shop",resource_identifier="cpu"}`
	observe(&predictionv1alpha1.ScalingChoice{Use: true, ActualExtraReplicas: "0.031", ActualSparedTime: "0.80"})
	check(`# HELP crane_scaling_ahead_extra_replicas_ratio Additional replica hours that scaling by the forecast caused on the past days, as a fraction of those of the HPA alone.
# TYPE crane_scaling_ahead_extra_replicas_ratio gauge
crane_scaling_ahead_extra_replicas_ratio` + labels + ` 0.031
# HELP crane_scaling_ahead_spared_ratio Share of the time under capacity that scaling by the forecast avoided on the past days.
# TYPE crane_scaling_ahead_spared_ratio gauge
crane_scaling_ahead_spared_ratio` + labels + ` 0.8
# HELP crane_scaling_ahead_used 1 if the forecast scales the workload, 0 if its replicas would cost more than they avoid.
# TYPE crane_scaling_ahead_used gauge
crane_scaling_ahead_used` + labels + ` 1
`)

	observe(&predictionv1alpha1.ScalingChoice{ActualExtraReplicas: "broken"})
	check(`# HELP crane_scaling_ahead_spared_ratio Share of the time under capacity that scaling by the forecast avoided on the past days.
# TYPE crane_scaling_ahead_spared_ratio gauge
crane_scaling_ahead_spared_ratio` + labels + ` 0
# HELP crane_scaling_ahead_used 1 if the forecast scales the workload, 0 if its replicas would cost more than they avoid.
# TYPE crane_scaling_ahead_used gauge
crane_scaling_ahead_used` + labels + ` 0
`)

	observe(nil)
	check("")
	observe(&predictionv1alpha1.ScalingChoice{})
	m.forget(types.NamespacedName{Namespace: "shop", Name: "web"})
	check("")
}
