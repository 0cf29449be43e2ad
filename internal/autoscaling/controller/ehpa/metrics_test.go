// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
)

// exported returns the series of a collector in the text format, without comments.
func exported(t *testing.T, c prometheus.Collector) string {
	t.Helper()

	text, err := testutil.CollectAndFormat(c, expfmt.TypeTextPlain, "crane_autoscaling_cron", "crane_autoscaling_effective_hpa_replicas",
		"crane_autoscaling_hpa_replicas", "crane_autoscaling_hpa_scale_count", "crane_autoscaling_prediction", "crane_metricrule_errcount", "crane_autoscaling_rule_without_effect")
	if err != nil {
		t.Fatal(err)
	}

	series := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return line == "" || strings.HasPrefix(line, "#") })
	if n := testutil.CollectAndCount(c); n != len(series) {
		t.Errorf("%d series, of which %d have known names, want only these", n, len(series))
	}

	return strings.Join(series, "\n")
}

func (b *fixture) metrics() *Metrics {
	elected := make(chan struct{})
	close(elected)
	return &Metrics{Reader: b.Client, Zones: &scalingmetric.Zones{}, Elected: elected, Rules: func() ListedRules { return ListedRules{} }, Clock: b.clock}
}

// copyForecast creates a forecast of a tenant in another namespace for the same target, with the labels of one that serves an autoscaler.
func (b *fixture) copyForecast(t *testing.T, name, namespace, value string) {
	t.Helper()
	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := b.Client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, tsp); err != nil {
		t.Fatal(err)
	}
	forged := &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: tsp.Labels}, Spec: *tsp.Spec.DeepCopy(),
	}
	status := tsp.Status.DeepCopy()
	for i := range status.PredictionMetrics {
		for j := range status.PredictionMetrics[i].Prediction {
			for k := range status.PredictionMetrics[i].Prediction[j].Samples {
				status.PredictionMetrics[i].Prediction[j].Samples[k].Value = value
			}
		}
	}
	if err := b.Client.Create(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	forged.Status = *status
	if err := b.Client.Status().Update(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
}

// TestMetrics checks the series with gocrane's names and labels, that each target has one of a kind, and that they disappear with their
// objects.
func TestMetrics(t *testing.T) {
	crons := func(replicas int32) []autoscalingv1alpha1.CronSpec {
		return []autoscalingv1alpha1.CronSpec{{CronName: "noon", Start: "0 12 * * *", End: "0 13 * * *", TargetReplicas: replicas}}
	}

	foreign := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "foreign"}, Status: autoscalingv2.HorizontalPodAutoscalerStatus{DesiredReplicas: 3},
	}
	b := newFixture(t, deployment("web", 4), foreign, web(func(e *scaler) { e.Spec.Crons = crons(8) }), web(func(e *scaler) {
		e.Name, e.UID, e.Spec.ScaleStrategy, e.Spec.Crons = "preview", "uid-of-preview", autoscalingv1alpha1.ScaleStrategyPreview, crons(9)
	}))
	b.reconcile(t, "web")
	b.reconcile(t, "preview")

	b.writeForecast(t, "ehpa-web", "0.5", 0.3)
	b.writeHPAStatus(t, "ehpa-web", 4, 6, 90)
	b.reconcile(t, "web")
	b.copyForecast(t, "ehpa-web", "evil", "99")
	m := b.metrics()

	want := strings.Join([]string{
		"crane_autoscaling_cron{resourceIdentifier=\"cron\",targetKind=\"Deployment\",targetName=\"web\",targetNamespace=\"shop\"} 8",
		"crane_autoscaling_effective_hpa_replicas{name=\"preview\",namespace=\"shop\"} 9",
		"crane_autoscaling_effective_hpa_replicas{name=\"web\",namespace=\"shop\"} 6",
		"crane_autoscaling_hpa_replicas{name=\"ehpa-web\",namespace=\"shop\"} 6",
		"crane_autoscaling_hpa_replicas{name=\"foreign\",namespace=\"shop\"} 3",
		"crane_autoscaling_prediction{algorithm=\"auto\",resourceIdentifier=\"resource.cpu\",targetKind=\"Deployment\",targetName=\"web\",targetNamespace=\"shop\"} 0.3",
	}, "\n")

	if got := exported(t, m); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	m.Elected = make(chan struct{})
	if got := exported(t, m); got != "" {
		t.Errorf("a replica that does not lead exports %s, want nothing", got)
	}

	m = b.metrics()
	b.clock.Step(time.Hour)

	if got := exported(t, m); !strings.Contains(got, "crane_autoscaling_cron{resourceIdentifier=\"cron\",targetKind=\"Deployment\",targetName=\"web\",targetNamespace=\"shop\"} 2") {
		t.Errorf("after the window: %s, want 2 replicas", got)
	}

	// A forecast from another namespace does not take the place of one that is gone.
	if err := b.Client.DeleteAllOf(t.Context(), &predictionv1alpha1.TimeSeriesPrediction{}, client.InNamespace("shop")); err != nil {
		t.Fatal(err)
	}
	if got := exported(t, m); strings.Contains(got, "crane_autoscaling_prediction") {
		t.Errorf("without a forecast in the namespace of the target: %s, want no forecast", got)
	}

	for _, o := range []client.Object{
		&scaler{}, &autoscalingv2.HorizontalPodAutoscaler{}, &predictionv1alpha1.TimeSeriesPrediction{},
	} {
		for _, namespace := range []string{"shop", "evil"} {
			if err := b.Client.DeleteAllOf(t.Context(), o, client.InNamespace(namespace)); err != nil {
				t.Fatal(err)
			}
		}
	}

	if got := exported(t, m); got != "" {
		t.Errorf("after the deletion of all objects: %s, want nothing", got)
	}
}

// TestScaleCount checks that changes of the desired replicas count once they are carried out, by who controls the HPA.
func TestScaleCount(t *testing.T) {
	hpa := func(desired int32, reason string, owners ...metav1.OwnerReference) *autoscalingv2.HorizontalPodAutoscaler {
		return &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", OwnerReferences: owners},
			Status: autoscalingv2.HorizontalPodAutoscalerStatus{
				DesiredReplicas: desired, Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.AbleToScale, Reason: reason}},
			},
		}
	}

	owner := metav1.OwnerReference{Kind: "EffectiveHorizontalPodAutoscaler", Name: "web", Controller: new(true)}
	m := newFixture(t).metrics()
	m.recordScaling(hpa(2, "SucceededRescale"), hpa(2, "SucceededRescale"))
	m.recordScaling(hpa(2, "ReadyForNewScale"), hpa(3, "FailedUpdateScale"))

	if got := exported(t, m); got != "" {
		t.Errorf("counted %s, want nothing", got)
	}

	m.recordScaling(hpa(2, "ReadyForNewScale"), hpa(3, "SucceededRescale"))
	m.recordScaling(hpa(3, "ReadyForNewScale", owner), hpa(4, "SucceededRescale", owner))
	m.recordScaling(hpa(4, "ReadyForNewScale", owner), hpa(5, "SucceededRescale", owner))

	want := "crane_autoscaling_hpa_scale_count{name=\"web\",namespace=\"shop\",type=\"ehpa\"} 2\ncrane_autoscaling_hpa_scale_count{name=\"web\",namespace=\"shop\",type=\"hpa\"} 1"
	if got := exported(t, m); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	m.forgetHPA(client.ObjectKeyFromObject(hpa(0, "")))
	if got := exported(t, m); got != "" {
		t.Errorf("after the deletion: %s, want nothing", got)
	}
}

// TestRuleErrors checks that the errors of prometheus-adapter's configuration are counted by list until it is valid.
func TestRuleErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	f := &RulesWatcher{File: path, Clock: clocktesting.NewFakeClock(noon())}
	m := newFixture(t).metrics()

	m.Rules = f.Current
	var text strings.Builder
	for _, rule := range []string{"externalRules[0]", "resourceRules.cpu", "rules[0]", "rules[1]"} {
		fmt.Fprintf(&text, "crane_autoscaling_rule_without_effect{reason=\"refused\",rule=%q} 1\n", rule)
	}
	ineffective := text.String()

	for _, c := range []struct{ config, want string }{
		{"", "crane_metricrule_errcount{metricKind=\"all\"} 1"},
		{"externalRules: [{seriesQuery: a, metricsQuery: 'a'}]", ""},
		{
			"rules: [{}, {}]\nexternalRules: [{}]\nresourceRules: {cpu: {containerQuery: '<<'}}",
			ineffective + "crane_metricrule_errcount{metricKind=\"externalRules\"} 1\ncrane_metricrule_errcount{metricKind=\"resourceRules\"} 1\n" +
				"crane_metricrule_errcount{metricKind=\"rules\"} 2",
		},
		{"rules: {", ineffective + "crane_metricrule_errcount{metricKind=\"all\"} 1"},
		{"externalRules: [{seriesQuery: a, metricsQuery: 'a'}]", ""},
	} {
		if c.config != "" {
			if err := os.WriteFile(path, []byte(c.config), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		_, err := f.refresh(t.Context())
		if got := exported(t, m); got != c.want || (f.Current().Problem == nil) != (c.want == "") {
			t.Errorf("%q: refresh = %v, got\n%s\nwant\n%s", c.config, err, got, c.want)
		}
	}
}
