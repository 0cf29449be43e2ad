// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

func externalAverage(name, target string) autoscalingv2.MetricSpec {
	q := resource.MustParse(target)
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: name},
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &q},
	}}
}

// TestForecastSelectorIsValid checks that the HPA can read the forecast of each metric and target that an EffectiveHPA may have: with a selector
// that is no label selector the HPA would never scale down.
func TestForecastSelectorIsValid(t *testing.T) {
	const longTarget = "a-service-with-a-rather-long-name-that-has-more-than-63-characters"
	for name, c := range map[string]struct{ metric, target string }{
		"a recording rule":                    {"job:orders_waiting:sum", "web"},
		"a name of more than 63 characters":   {"apiserver_flowcontrol_read_vs_write_current_requests_count", "web"},
		"a target of more than 63 characters": {"queue", longTarget},
		"a name that ends with a dash":        {"queue-", "web"},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment("web", 4)
			d.Name = c.target

			b := newFixture(t, d, web(func(e *scaler) {
				e.Spec.ScaleTargetRef.Name = c.target
				e.Spec.Metrics = []autoscalingv2.MetricSpec{externalAverage(c.metric, "100")}
			}))
			b.reconcile(t, "web")
			b.writeForecast(t, "ehpa-web", "0.5", 700)
			b.reconcile(t, "web")
			b.writeHPAStatus(t, "ehpa-web", 4, 4, 58)
			e, _ := b.reconcile(t, "web")

			hpa := b.hpa(t, "ehpa-web")
			if len(hpa.Spec.Metrics) != 2 {
				t.Fatalf("the HPA has %d metrics, want the metric and its forecast: %v", len(hpa.Spec.Metrics), e.Status.Conditions)
			}

			if _, err := metav1.LabelSelectorAsSelector(hpa.Spec.Metrics[1].External.Metric.Selector); err != nil {
				t.Errorf("LabelSelectorAsSelector of the forecast's selector = %v, want one that the HPA controller accepts", err)
			}

			want := "prediction of external." + c.metric
			if got := e.Status.Proposals[len(e.Status.Proposals)-1].Name; got != want {
				t.Errorf("the forecast's proposal is named %q, want %q", got, want)
			}
		})
	}
}

// TestHPAFailureIsReported checks that a failure of the HPA is one of the autoscaler, and of its forecasts where it is about them.
func TestHPAFailureIsReported(t *testing.T) {
	const forecastFailure = "the HPA was unable to compute the replica count: unable to get external metric shop/crane_autoscaling_prediction/&LabelSelector{}: 503"
	for name, c := range map[string]struct {
		condition                 autoscalingv2.HorizontalPodAutoscalerCondition
		wantReady, wantPrediction string
	}{
		"the metric": {
			autoscalingv2.HorizontalPodAutoscalerCondition{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionFalse, Reason: "FailedGetResourceMetric", Message: "no metrics"},
			"False/FailedGetResourceMetric", "True/Predicting",
		},
		"the forecast": {
			autoscalingv2.HorizontalPodAutoscalerCondition{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionFalse, Reason: "FailedGetExternalMetric", Message: forecastFailure},
			"False/FailedGetExternalMetric", "False/FailedGetExternalMetric",
		},
		"the target": {
			autoscalingv2.HorizontalPodAutoscalerCondition{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionFalse, Reason: "FailedUpdateScale", Message: "conflict"},
			"False/FailedUpdateScale", "True/Predicting",
		},
		"none": {
			autoscalingv2.HorizontalPodAutoscalerCondition{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionTrue, Reason: "ValidMetricFound", Message: "fine"},
			"True/EffectiveHorizontalPodAutoscalerReady", "True/Predicting",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, deployment("web", 4), web())
			b.reconcile(t, "web")
			b.writeForecast(t, "ehpa-web", "0.5", 0.3)
			b.reconcile(t, "web")
			b.writeHPAStatus(t, "ehpa-web", 4, 4, 58)

			hpa := b.hpa(t, "ehpa-web")
			hpa.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{c.condition}
			if err := b.Client.Status().Update(t.Context(), hpa); err != nil {
				t.Fatal(err)
			}

			e, _ := b.reconcile(t, "web")
			if got := conditionText(e, "Ready"); got != c.wantReady {
				t.Errorf("Ready = %s, want %s", got, c.wantReady)
			}
			if got := conditionText(e, "PredictionReady"); got != c.wantPrediction {
				t.Errorf("PredictionReady = %s, want %s", got, c.wantPrediction)
			}

			hpa = b.hpa(t, "ehpa-web")
			hpa.Status.Conditions[0].Message += " (another number)"
			if err := b.Client.Status().Update(t.Context(), hpa); err != nil {
				t.Fatal(err)
			}
			if _, writes := b.reconcile(t, "web"); writes > 0 {
				t.Errorf("%d writes after another message with the same reason, want none", writes)
			}
		})
	}
}

// TestQueryAnnotationOfAnyMetric checks that each metric can have an annotation with its query, and that one for no metric is reported.
func TestQueryAnnotationOfAnyMetric(t *testing.T) {
	key := "metric-query.autoscaling.crane.io/external.job_orders_waiting_sum-8d03a1d0c9"
	b := newFixture(t, deployment("web", 4), web(func(e *scaler) {
		e.Spec.Metrics = []autoscalingv2.MetricSpec{externalAverage("job:orders_waiting:sum", "100")}
		e.Annotations = map[string]string{"metric-query.autoscaling.crane.io/orders": "sum(orders)"}
	}))
	b.reconcile(t, "web")
	b.writeForecast(t, "ehpa-web", "0.5", 700)

	e, _ := b.reconcile(t, "web")
	c := meta.FindStatusCondition(e.Status.Conditions, "PredictionReady")
	if c.Status != metav1.ConditionFalse || c.Reason != "UnknownMetricQuery" || !strings.Contains(c.Message, "metric-query.autoscaling.crane.io/orders") {
		t.Fatalf("PredictionReady = %s/%s %q, want False/UnknownMetricQuery with the annotation", c.Status, c.Reason, c.Message)
	}

	if i := strings.LastIndex(c.Message, "metric-query.autoscaling.crane.io/external."); i >= 0 {
		key = c.Message[i:]
	}

	e.Annotations = map[string]string{key: "sum(orders)"}
	if err := b.Client.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}

	e, _ = b.reconcile(t, "web")
	if got := conditionText(e, "PredictionReady"); got != "True/Predicting" {
		t.Errorf("PredictionReady with the annotation %s = %s, want True/Predicting", key, got)
	}

	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := b.Client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "ehpa-web"}, tsp); err != nil {
		t.Fatal(err)
	}
	if got := tsp.Spec.PredictionMetrics[0].ExpressionQuery.Expression; got != "sum(orders)" {
		t.Errorf("the forecast is of %s, want sum(orders)", got)
	}
}

// TestReplicasOfAnHPAWithoutDecision checks that an HPA that has computed nothing has no figure of replicas: 0 is one.
func TestReplicasOfAnHPAWithoutDecision(t *testing.T) {
	condition := func(kind autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason string) []autoscalingv2.HorizontalPodAutoscalerCondition {
		return []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: kind, Status: status, Reason: reason}}
	}

	for name, c := range map[string]struct {
		current, desired int32
		conditions       []autoscalingv2.HorizontalPodAutoscalerCondition
		want             bool
	}{
		"not processed":              {0, 0, nil, false},
		"no scale":                   {0, 0, condition(autoscalingv2.AbleToScale, "False", "FailedGetScale"), false},
		"no metric from the start":   {6, 0, condition(autoscalingv2.ScalingActive, "False", "FailedGetResourceMetric"), false},
		"no metric after a decision": {6, 6, condition(autoscalingv2.ScalingActive, "False", "FailedGetResourceMetric"), true},
		"a decision":                 {6, 7, condition(autoscalingv2.ScalingActive, "True", "ValidMetricFound"), true},
		"scaled to 0":                {3, 0, condition(autoscalingv2.ScalingActive, "True", "ValidMetricFound"), true},
		"switched off":               {0, 0, condition(autoscalingv2.ScalingActive, "False", "ScalingDisabled"), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, deployment("web", 4), web())
			b.reconcile(t, "web")

			hpa := b.hpa(t, "ehpa-web")
			hpa.Status = autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: c.current, DesiredReplicas: c.desired, Conditions: c.conditions}
			if err := b.Client.Status().Update(t.Context(), hpa); err != nil {
				t.Fatal(err)
			}

			e, _ := b.reconcile(t, "web")
			if got := e.Status.ExpectReplicas; (got != nil) != c.want || got != nil && *got != c.desired {
				t.Errorf("expectReplicas = %v, want one: %v", got, c.want)
			}

			series := exported(t, b.metrics())
			for _, metric := range []string{"crane_autoscaling_hpa_replicas{", "crane_autoscaling_effective_hpa_replicas{"} {
				if got := strings.Contains(series, metric); got != c.want {
					t.Errorf("%s is exported: %v, want %v:\n%s", metric, got, c.want, series)
				}
			}
		})
	}
}
