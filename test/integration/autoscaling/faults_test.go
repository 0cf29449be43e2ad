// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
)

// wantMessage checks that the message of a condition contains a text.
func wantMessage(t *testing.T, e *ehpa, kind, want string) {
	t.Helper()

	if got := conditionMessage(e, kind); !strings.Contains(got, want) {
		t.Errorf("%s says %q, want %q in it", kind, got, want)
	}
}

// TestTargetsThatCannotBeScaled checks the reason of each problem with a target, and that a target that appears is scaled.
func TestTargetsThatCannotBeScaled(t *testing.T) {
	f := newFixture(t)
	metrics.setSharedLoad(f.Name, 300)
	labels := map[string]string{"app": "agent"}
	daemons := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}
	daemons.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	daemons.Spec.Template = deployment("agent", 1, 250).Spec.Template
	f.CreateAll(daemons, scaler("agent", func(e *ehpa) { e.Spec.ScaleTargetRef.Kind = "DaemonSet" }))
	e := f.awaitCondition("agent", "Ready=False/NoScaleSubresource")
	wantMessage(t, e, "Ready", "DaemonSet agent: it has no scale subresource")

	f.CreateAll(scaler("unknown", func(e *ehpa) {
		e.Spec.ScaleTargetRef.APIVersion, e.Spec.ScaleTargetRef.Kind = "example.com/v1", "Widget"
	}))
	e = f.awaitCondition("unknown", "Ready=False/FailedGetScale")
	wantMessage(t, e, "Ready", "the cluster knows no such kind")

	f.CreateAll(scaler("late"))
	e = f.awaitCondition("late", "Ready=False/FailedGetScale")
	wantMessage(t, e, "Ready", "Deployment late: it does not exist")
	f.CreateAll(deployment("late", 2, 250))
	f.awaitCondition("late", "Ready=True/EffectiveHorizontalPodAutoscalerReady")

	f.CreateAll(deployment("off", 0, 250), scaler("off"))
	f.awaitCondition("off", "Ready=False/ScalingDisabled")
	f.wantReplicas("off", 0)

	for _, name := range []string{"agent", "unknown"} {
		f.AwaitGone(&autoscalingv2.HorizontalPodAutoscaler{}, "ehpa-"+name)
	}
}

// TestMetricsThatFail checks that replicas stay without requests or values, with a reason.
func TestMetricsThatFail(t *testing.T) {
	f := newFixture(t)
	metrics.setPodUsage(f.Name, 150)
	f.CreateAll(deployment("bare", 3, 0), scaler("bare"))
	e := f.awaitCondition("bare", "ScalingActive=False/FailedGetResourceMetric")
	wantMessage(t, e, "PredictionReady", "container main requests no cpu")
	f.wantReplicas("bare", 3)

	each := metricOf("queue", "30")
	f.CreateAll(deployment("web", 4, 250), scaler("web", func(e *ehpa) { e.Spec.Metrics = append(e.Spec.Metrics, each) }))
	metrics.setQueue(f.Name, 120)

	f.awaitScaler("web", "both metrics ask for 4", func(e *ehpa) error {
		a := proposal(e, "resource.cpu")
		b := proposal(e, "external.queue")
		if a.Replicas == nil || b.Replicas == nil || *a.Replicas != 4 || *b.Replicas != 4 {
			return fmt.Errorf("%+v", e.Status.Proposals)
		}

		return nil
	})

	t.Log("one metric disappears: nothing scales down, though the other asks for less")
	metrics.setPodUsage(f.Name, -1)
	metrics.setQueue(f.Name, 30)
	f.awaitScaler("web", "says which is missing", func(e *ehpa) error {
		if p := proposal(e, "resource.cpu"); p.Message == "" || p.Replicas != nil {
			return fmt.Errorf("%+v", e.Status.Proposals)
		}

		return nil
	})

	f.awaitCondition("web", "ScalingActive=False/FailedGetResourceMetric")
	f.wantReplicas("web", 4)
	t.Log("but up")
	metrics.setQueue(f.Name, 180)
	f.awaitReplicas("web", 6)
}

func metricOf(name, average string) autoscalingv2.MetricSpec {
	m := autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: name},
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType},
	}}
	q := resource.MustParse(average)
	m.External.Target.AverageValue = &q

	return m
}

// TestForecastsThatAreNoForecasts checks that NaN, several series, and a forecast that is not served scale nothing.
func TestForecastsThatAreNoForecasts(t *testing.T) {
	f := newFixture(t)
	metrics.setSharedLoad(f.Name, 450)
	f.CreateAll(deployment("web", 3, 250), scaler("web"))
	f.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")

	for _, c := range []struct {
		name, want string
		values     []float64
	}{
		{"NaN", "NaN", []float64{math.NaN()}},
		{"several series", "several series (2): aggregate it", []float64{1, 2}},
	} {
		f.forecast("web", "0.5", c.values...)
		f.awaitScaler("web", c.name, func(e *ehpa) error {
			if got := conditionMessage(e, "PredictionReady"); !strings.Contains(got, c.want) {
				return fmt.Errorf("it says %q", got)
			}

			return nil
		})

		f.wantReplicas("web", 3)
	}

	t.Log("one that is good, then not served")
	f.forecast("web", "0.5", 0.9)
	f.awaitReplicas("web", 6)
	metrics.serveForecasts(false)
	defer metrics.serveForecasts(true)

	e := f.awaitCondition("web", "PredictionReady=False/MetricsAPIMissing")
	wantMessage(t, e, "PredictionReady", "install the metric-adapter")
	f.awaitHPA("ehpa-web", "without the forecast", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if len(h.Spec.Metrics) != 1 {
			return fmt.Errorf("metrics %+v", h.Spec.Metrics)
		}

		return nil
	})

	f.awaitReplicas("web", 3)
	metrics.serveForecasts(true)
	f.awaitCondition("web", "PredictionReady=True/Predicting")
	f.awaitReplicas("web", 6)
}

// TestCrons checks that an open window raises the floor of the HPA, and that invalid ones are reported and have no effect.
func TestCrons(t *testing.T) {
	f := newFixture(t)
	metrics.setSharedLoad(f.Name, 300)
	nowhere, berlin := "Europe/Atlantis", "Europe/Berlin"
	cron := func(name, start, end string, zone *string, n int32) autoscalingv1alpha1.CronSpec {
		return autoscalingv1alpha1.CronSpec{
			CronName: name, Start: autoscalingv1alpha1.CronExpression(start), End: autoscalingv1alpha1.CronExpression(end), TimeZone: zone, TargetReplicas: n,
		}
	}

	f.CreateAll(deployment("web", 2, 250), scaler("web", func(e *ehpa) {
		e.Spec.Crons = []autoscalingv1alpha1.CronSpec{
			// It opens each minute, so that it is open whenever the test runs.
			cron("always", "* * * * *", "0 0 29 2 *", &berlin, 7),
			cron("same", "0 8 * * *", "0 8 * * *", nil, 15),
			cron("lost", "0 8 * * *", "0 9 * * *", &nowhere, 16),
		}
	}))

	e := f.awaitCondition("web", "CronReady=False/InvalidCron")
	wantMessage(t, e, "CronReady", "would never close")
	f.awaitReplicas("web", 7)
	f.awaitHPA("ehpa-web", "with a floor", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if *h.Spec.MinReplicas != 7 {
			return fmt.Errorf("minReplicas %d", *h.Spec.MinReplicas)
		}

		return nil
	})

	e = f.awaitScaler("web", "the schedule wins", func(e *ehpa) error {
		if e.Status.Winner != "cron always" {
			return fmt.Errorf("%q by %+v", e.Status.Winner, e.Status.Proposals)
		}

		return nil
	})

	crons := e.Status.Crons
	if len(crons) != 3 || !crons[0].Active || crons[0].NextStart == nil || crons[0].NextEnd == nil || crons[1].Active ||
		!strings.Contains(crons[2].Message, "Europe/Atlantis") {
		t.Errorf("crons %+v, want the first of three active and the last without its zone", crons)
	}

	t.Log("without schedules the floor is the autoscaler's own")
	f.change("web", func(e *ehpa) { e.Spec.Crons = nil })
	f.awaitReplicas("web", 2)
}

// TestAPIServerRestarted checks that replicas stay during an outage of the API server, and that later changes are applied.
func TestAPIServerRestarted(t *testing.T) {
	// The lease outlives the restart. Without its lease craned exits, and a kubelet would restart it.
	f := newFixture(t, "--lease-duration=120s", "--lease-renew-period=110s")
	metrics.setSharedLoad(f.Name, 450)
	f.CreateAll(deployment("web", 3, 250), scaler("web"))
	f.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
	before := f.awaitHPA("ehpa-web", "made", func(*autoscalingv2.HorizontalPodAutoscaler) error { return nil })

	if err := control.StopComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	if err := control.StartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	f.Eventually("the API server is back", func(ctx context.Context) error {
		return f.Get(ctx, f.Key("web"), &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{})
	})
	f.wantReplicas("web", 3)
	f.change("web", func(e *ehpa) { e.Spec.MaxReplicas = 9 })

	h := f.awaitHPA("ehpa-web", "follows", func(h *autoscalingv2.HorizontalPodAutoscaler) error {
		if h.Spec.MaxReplicas != 9 {
			return fmt.Errorf("maxReplicas %d", h.Spec.MaxReplicas)
		}

		return nil
	})

	if h.UID != before.UID {
		t.Error("the HPA was created again, want the one of before the restart")
	}

	f.awaitCondition("web", "Ready=True/EffectiveHorizontalPodAutoscalerReady")
	f.wantReplicas("web", 3)
}

// TestNamesThatAreTaken checks that an object of another owner with the name is left unchanged and reported.
func TestNamesThatAreTaken(t *testing.T) {
	f := newFixture(t)
	metrics.setSharedLoad(f.Name, 300)
	one := int32(1)
	taken := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "ehpa-web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "other"},
			MinReplicas:    &one, MaxReplicas: 2,
		},
	}

	f.CreateAll(taken, deployment("web", 2, 250), scaler("web"))
	e := f.awaitCondition("web", "Ready=False/FailedReconcileHPA")
	wantMessage(t, e, "Ready", "has another owner")

	if err := f.Get(t.Context(), client.ObjectKeyFromObject(taken), taken); err != nil || taken.Spec.ScaleTargetRef.Name != "other" {
		t.Errorf("spec %+v, %v, want the target other as before", taken.Spec, err)
	}
}
