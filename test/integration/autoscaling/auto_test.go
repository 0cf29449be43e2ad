// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// ehpa abbreviates the type for edits.
type ehpa = autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler

// TestAutoScalesOnCurrentAndPredictedLoad checks an autoscaler with the current load, a forecast above it, one below it, and one
// that is not worth its replicas.
func TestAutoScalesOnCurrentAndPredictedLoad(t *testing.T) {
	f := newFixture(t)
	metrics.setSharedLoad(f.Name, 300) // 60 % of 250m in each of two pods
	f.CreateAll(deployment("web", 2, 250), scaler("web"))

	h := f.awaitHPA("ehpa-web", "made", func(*autoscalingv2.HorizontalPodAutoscaler) error { return nil })
	e := f.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
	if !metav1.IsControlledBy(h, e) || *h.Spec.MinReplicas != 2 || h.Spec.MaxReplicas != 20 || len(h.Spec.Metrics) != 1 ||
		h.Labels["app.kubernetes.io/managed-by"] != "effective-hpa-controller" || h.Labels["autoscaling.crane.io/effective-hpa-uid"] != string(e.UID) {
		t.Errorf("HPA %+v %+v, want 2 to 20 replicas, one metric and the labels of its owner", h.ObjectMeta, h.Spec)
	}

	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := f.Get(t.Context(), f.Key("ehpa-web"), tsp); err != nil {
		t.Fatal(err)
	}

	if m := tsp.Spec.PredictionMetrics; len(m) != 1 || m[0].ResourceIdentifier != "resource.cpu" || m[0].Type != predictionv1alpha1.ResourceQueryMetricType ||
		tsp.Spec.TargetRef.Name != "web" || tsp.Labels["app.kubernetes.io/target-name"] != "web" {
		t.Errorf("prediction %+v %+v, want resource.cpu of web alone", tsp.Labels, tsp.Spec)
	}

	f.awaitCondition("web", "PredictionReady=False/PredictionIgnored")

	t.Log("the forecast is above the load: 3 cores at 150m a pod are 20 pods")
	f.forecast("web", "0.62", 3)
	f.awaitHPA("ehpa-web", "has the forecast", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if len(h.Spec.Metrics) != 2 || h.Spec.Metrics[1].External.Target.AverageValue.String() != "150m" {
			return fmt.Errorf("metrics %+v", h.Spec.Metrics)
		}

		if got := h.Spec.Metrics[1].External.Metric.Selector.MatchLabels; got["targetKind"] != "Deployment" || got["targetName"] != "web" ||
			got["targetNamespace"] != f.Name || got["resourceIdentifier"] != "resource.cpu" {
			return fmt.Errorf("selector %v", got)
		}

		return nil
	})

	f.awaitReplicas("web", 20)
	f.awaitCondition("web", "PredictionReady=True/Predicting")
	e = f.awaitScaler("web", "says who won", func(e *ehpa) error {
		if e.Status.Winner != "prediction of resource.cpu" || e.Status.ExpectReplicas == nil || *e.Status.ExpectReplicas != 20 ||
			e.Status.CurrentReplicas == nil || *e.Status.CurrentReplicas != 20 {
			return fmt.Errorf("status %+v", e.Status)
		}

		return nil
	})

	if p := proposal(e, "prediction of resource.cpu"); p.Replicas == nil || *p.Replicas != 20 || p.Target != "150m" {
		t.Errorf("proposals %+v, want 20 replicas at 150m", e.Status.Proposals)
	}
	if e.Status.Autoscaler != "HorizontalPodAutoscaler/ehpa-web" || e.Status.LastScaleTime == nil {
		t.Errorf("status %+v, want HorizontalPodAutoscaler/ehpa-web and a time", e.Status)
	}

	target := fmt.Sprintf("targetKind=%q,targetName=%q,targetNamespace=%q", "Deployment", "web", f.Name)
	f.awaitSeries("gocrane's metrics", map[string]float64{
		`crane_autoscaling_hpa_replicas{name="ehpa-web",namespace="` + f.Name + `"}`:                      20,
		`crane_autoscaling_effective_hpa_replicas{name="web",namespace="` + f.Name + `"}`:                 20,
		`crane_autoscaling_prediction{algorithm="auto",resourceIdentifier="resource.cpu",` + target + `}`: 3,
	})

	scalings := `crane_autoscaling_hpa_scale_count{name="ehpa-web",namespace="` + f.Name + `",type="ehpa"}`
	if n, err := f.craned.Metric(t.Context(), scalings); err != nil || n < 1 {
		t.Errorf("%v scalings are counted, %v, want 1 or more", n, err)
	}

	t.Log("a forecast below what the load asks for changes nothing: current metrics hold 4")
	metrics.setSharedLoad(f.Name, 600) // 4 pods at 150m
	f.forecast("web", "0.62", 0.3)
	f.awaitReplicas("web", 4)

	f.awaitScaler("web", "cpu wins", func(e *ehpa) error {
		if p := proposal(e, "prediction of resource.cpu"); e.Status.Winner != "resource.cpu" || p.Replicas == nil || *p.Replicas != 2 {
			return fmt.Errorf("%s: %+v", e.Status.Winner, e.Status.Proposals)
		}

		return nil
	})

	t.Log("a forecast that bought nothing in the past days is ignored with the reason, whatever its skill")
	f.forecastWithChoice("web", "0.62", predictionv1alpha1.ScalingChoice{Why: "it spared no time under capacity"}, 3)
	f.awaitScaler("web", "ignores the forecast", func(e *ehpa) error {
		if got := conditionMessage(e, "PredictionReady"); !strings.Contains(got, "it spared no time under capacity") {
			return fmt.Errorf("message %q", got)
		}

		return nil
	})

	f.awaitHPA("ehpa-web", "without the forecast", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if len(h.Spec.Metrics) != 1 {
			return fmt.Errorf("metrics %+v", h.Spec.Metrics)
		}

		return nil
	})

	if got, err := f.replicas(t.Context(), "web"); err != nil || got != 4 {
		t.Errorf("replicas %d, %v, want 4", got, err)
	}

	t.Log("without prediction its object goes")
	f.change("web", func(e *ehpa) { e.Spec.Prediction = nil })
	f.AwaitGone(&predictionv1alpha1.TimeSeriesPrediction{}, "ehpa-web")
	f.awaitScaler("web", "no condition of it", func(e *ehpa) error {
		if c := meta.FindStatusCondition(e.Status.Conditions, "PredictionReady"); c != nil {
			return fmt.Errorf("condition %+v", c)
		}

		return nil
	})

	t.Log("the metrics of a deleted autoscaler disappear")
	if err := f.Client.Delete(t.Context(), f.awaitScaler("web", "exists", func(*ehpa) error { return nil })); err != nil {
		t.Fatal(err)
	}

	f.Eventually("no series", func(ctx context.Context) error {
		page, err := f.craned.Metrics(ctx)
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "crane_autoscaling_") && strings.Contains(line, f.Name) {
				return fmt.Errorf("still exported: %s", line)
			}
		}

		return err
	})
}

// awaitSeries waits until craned exports series with values.
func (f *fixture) awaitSeries(state string, want map[string]float64) {
	f.T.Helper()

	f.Eventually(state, func(ctx context.Context) error {
		for series, value := range want {
			if got, err := f.craned.Metric(ctx, series); err != nil || got != value {
				return errors.Join(err, fmt.Errorf("%s is %v, want %v", series, got, value))
			}
		}

		return nil
	})
}

// TestWithoutPromQL checks that without a Prometheus data source cron windows, current metrics and previews work, and that a condition names
// the metric whose forecast needs PromQL.
func TestWithoutPromQL(t *testing.T) {
	f := newFixture(t, "--datasource=metricserver")
	metrics.setSharedLoad(f.Name, 300) // 60 % of 250m in each of two pods
	f.CreateAll(deployment("web", 2, 250), scaler("web", func(e *ehpa) {
		e.Spec.Metrics = append(e.Spec.Metrics, autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "requests"},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewQuantity(100, resource.DecimalSI)},
		}})
		e.Spec.Crons = []autoscalingv1alpha1.CronSpec{
			{CronName: "morning", Start: "0 0 * * *", End: "0 12 * * *", TargetReplicas: 5},
			{CronName: "evening", Start: "0 12 * * *", End: "0 0 * * *", TargetReplicas: 5},
		}
	}), deployment("new", 2, 250), scaler("new", func(e *ehpa) { e.Spec.ScaleStrategy = autoscalingv1alpha1.ScaleStrategyPreview }))

	f.awaitReplicas("web", 5)
	e := f.awaitCondition("web", "PredictionReady=False/PredictionIgnored")
	if got := conditionMessage(e, "PredictionReady"); !strings.Contains(got, "pods.requests: its forecast needs PromQL, and --datasource has no prom") {
		t.Errorf("PredictionReady: %s, want that the forecast needs PromQL", got)
	}

	harness.Await(f.Namespace, &autoscalingv1alpha1.Substitute{}, "ehpa-new", "has a selector", func(s *autoscalingv1alpha1.Substitute) error {
		if s.Status.LabelSelector == "" {
			return fmt.Errorf("status %+v", s.Status)
		}

		return nil
	})
}
