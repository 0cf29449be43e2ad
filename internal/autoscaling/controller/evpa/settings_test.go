// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/units"
	"crane.io/crane/pkg/vertical"
)

// TestContainerPolicy checks that the policy of a container precedes that for all, and that unset fields have defaults.
func TestContainerPolicy(t *testing.T) {
	off, only := autoscalingv1alpha1.ScaleModeOff, autoscalingv1alpha1.ControlledValuesRequestsOnly
	hour := int32(3600)
	sixty := int32(60)

	e := &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}
	if got := containerPolicy(e, "app"); got.Up.Window != 150*time.Second || got.Down.Thresholds[units.Memory] != 40 || len(got.Controlled) != 2 || got.RequestsOnly {
		t.Errorf("containerPolicy without a policy = %+v, want the default", got)
	}

	e.Spec.ResourcePolicy = &autoscalingv1alpha1.PodResourcePolicy{ContainerPolicies: []autoscalingv1alpha1.ContainerResourcePolicy{
		{ContainerName: "*", ScaleDownPolicy: &autoscalingv1alpha1.ContainerScalingPolicy{ScaleMode: &off}},
		{
			ContainerName: "app", ControlledValues: &only, ControlledResources: []corev1.ResourceName{"cpu"},
			MinAllowed: autoscalingv1alpha1.ResourceBounds{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")},
			ScaleUpPolicy: &autoscalingv1alpha1.ContainerScalingPolicy{
				StabilizationWindowSeconds: &hour, MetricThresholds: autoscalingv1alpha1.ResourceMetricThresholds{"cpu": {Utilization: &sixty}, "memory": {}},
			},
		},
	}}

	got := containerPolicy(e, "app")
	if got.Down.Off || got.Up.Window != time.Hour || got.Up.Thresholds[units.CPU] != 60 || got.Up.Thresholds[units.Memory] != 95 ||
		!got.RequestsOnly || got.Controls(units.Memory) || got.Min[units.CPU] != 100 || got.Min[units.Memory] != 64<<20 {
		t.Errorf("containerPolicy of a container with a policy = %+v, want that one", got)
	}

	if got := containerPolicy(e, "sidecar"); !got.Down.Off || got.RequestsOnly {
		t.Errorf("containerPolicy of another container = %+v, want that of all containers", got)
	}
	if d := vertical.DefaultPolicy(); d.Up.Thresholds[units.CPU] != 95 {
		t.Errorf("DefaultPolicy = %+v, want it unchanged", d)
	}
}

// TestEstimatorSettings checks that invalid settings are errors that name the key, and fail only their estimator.
func TestEstimatorSettings(t *testing.T) {
	for name, c := range map[string]struct {
		kind   string
		config map[string]string
		want   string
	}{
		"forecast":              {"Forecast", map[string]string{"prediction": "load", "cpu-identifier": "cpu", "per-pod": "true", "margin-fraction": "0"}, ""},
		"forecast of nothing":   {"Forecast", map[string]string{"prediction": "load"}, "needs prediction"},
		"unknown key":           {"Forecast", map[string]string{"predicton": "load"}, `config: predicton: "load": unknown key; `},
		"no bool":               {"Forecast", map[string]string{"prediction": "load", "cpu-identifier": "cpu", "per-pod": "maybe"}, `config: per-pod: "maybe": must be true or false`},
		"margin NaN":            {"Forecast", map[string]string{"prediction": "load", "cpu-identifier": "cpu", "margin-fraction": "NaN"}, `config: margin-fraction: "NaN": must be a number from 0 to 10`},
		"external":              {"External", map[string]string{"cpu-metric-name": "need", "metric-selector": "a=b,c in (d)"}, ""},
		"external of nothing":   {"External", nil, "needs cpu-metric-name"},
		"a path for a name":     {"External", map[string]string{"cpu-metric-name": "../../secrets"}, `"../../secrets": must be the name of a metric`},
		"no selector":           {"External", map[string]string{"cpu-metric-name": "need", "metric-selector": "a=="}, ""},
		"a selector of nothing": {"External", map[string]string{"cpu-metric-name": "need", "metric-selector": "(("}, `config: metric-selector: "((": must be a label selector`},
		"another estimator":     {"Mine", map[string]string{"max-age": "5m", "anything": "else"}, ""},
		"an age that is none":   {"Mine", map[string]string{"max-age": "old"}, "old"},
	} {
		e := &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}
		e.Spec.ResourceEstimators = []autoscalingv1alpha1.ResourceEstimator{{Type: c.kind, Config: c.config, Priority: 4}}

		got := parseEstimators(e)
		var err error
		switch {
		case got.forecast != nil:
			err = got.forecast.err
		case got.external != nil:
			err = got.external.err
		default:
			err = got.foreign[0].err
		}

		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if got.percentile.err != nil || got.oom.err != nil {
			t.Errorf("%s: errors %v and %v of the percentile and OOM estimators, want none", name, got.percentile.err, got.oom.err)
		}
	}
}
