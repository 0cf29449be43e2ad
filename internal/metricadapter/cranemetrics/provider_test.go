// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cranemetrics_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/metricadapter/cranemetrics"
)

func noon() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) }

// newPrediction returns a prediction of a Deployment with a value every five minutes from noon on.
func newPrediction(name, target string, values ...string) *predictionv1alpha1.TimeSeriesPrediction {
	tsp := &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name,
			Labels: map[string]string{autoscalingv1alpha1.LabelManagedBy: autoscalingv1alpha1.ManagedByEffectiveHPA},
		},
		Spec: predictionv1alpha1.TimeSeriesPredictionSpec{
			TargetRef: &corev1.ObjectReference{Kind: "Deployment", Name: target}, PredictionWindowSeconds: 600,
			PredictionMetrics: []predictionv1alpha1.PredictionMetric{{ResourceIdentifier: "resource.cpu"}},
		},
	}

	var samples []predictionv1alpha1.Sample
	for i, v := range values {
		samples = append(samples, predictionv1alpha1.Sample{Value: v, Timestamp: noon().Add(time.Duration(i) * 5 * time.Minute).Unix()})
	}

	tsp.Status.PredictionMetrics = []predictionv1alpha1.PredictionMetricStatus{{
		ResourceIdentifier: "resource.cpu", Ready: true, Skill: "0.5", UpdateTime: &metav1.Time{Time: noon().Add(-time.Minute)},
		Prediction: []predictionv1alpha1.MetricTimeSeries{{Samples: samples}},
	}}

	return tsp
}

func newAutoscaler(name, target string, crons ...autoscalingv1alpha1.CronSpec) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
	e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	e.Spec.ScaleTargetRef.Kind = "Deployment"
	e.Spec.ScaleTargetRef.Name = target
	e.Spec.Crons = crons

	return e
}

func newProvider(t *testing.T, local *time.Location, objects ...client.Object) *cranemetrics.Provider {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(predictionv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	for _, o := range []client.Object{&predictionv1alpha1.TimeSeriesPrediction{}, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}} {
		b = b.WithIndex(o, cranemetrics.TargetIndex, cranemetrics.TargetIndexValues)
	}

	return &cranemetrics.Provider{Reader: b.Build(), CheckSynced: func() error { return nil }, Zones: &scalingmetric.Zones{Default: local}, Clock: testclock.NewFakePassiveClock(noon())}
}

func TestValues(t *testing.T) {
	several := newPrediction("several", "several", "1")
	several.Status.PredictionMetrics[0].Prediction = append(several.Status.PredictionMetrics[0].Prediction, several.Status.PredictionMetrics[0].Prediction[0])
	foreign := newPrediction("foreign", "foreign", "1")
	foreign.Labels = nil

	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}

	lunch := autoscalingv1alpha1.CronSpec{CronName: "lunch", Start: "30 11 * * *", End: "30 12 * * *", TargetReplicas: 9}
	broken := autoscalingv1alpha1.CronSpec{CronName: "broken", Start: "never", End: "30 12 * * *", TargetReplicas: 99}
	objects := []client.Object{
		newPrediction("web", "web", "0.2", "0.9", "0.3", "5"), newPrediction("tiny", "tiny", "0.0001"), newPrediction("old", "old", "1"),
		newPrediction("nan", "nan", "NaN", "1", "1"), newPrediction("infinite", "infinite", "+Inf", "1", "1"), newPrediction("negative", "negative", "-1", "1", "1"),
		newPrediction("a", "twice", "1", "1"), newPrediction("b", "twice", "1", "1"),
		several, foreign,
		newAutoscaler("web", "web", lunch, broken), newAutoscaler("plain", "plain"),
	}

	const predicted, cron = autoscalingv1alpha1.MetricPrediction, autoscalingv1alpha1.MetricCron
	old := newPrediction("old", "old", "1", "1")
	for i := range old.Status.PredictionMetrics[0].Prediction[0].Samples {
		old.Status.PredictionMetrics[0].Prediction[0].Samples[i].Timestamp -= 3600
	}

	objects[2] = old
	for name, c := range map[string]struct {
		metric, target, identifier, namespace string
		local                                 *time.Location
		want                                  string
		code                                  int32
	}{
		"the peak of the window":           {metric: predicted, target: "web", want: "900m"},
		"next to nothing is not nothing":   {metric: predicted, target: "tiny", want: "1m"},
		"out of date":                      {metric: predicted, target: "old", code: http.StatusServiceUnavailable, want: "out of date"},
		"NaN":                              {metric: predicted, target: "nan", code: http.StatusServiceUnavailable, want: "NaN"},
		"infinite":                         {metric: predicted, target: "infinite", code: http.StatusServiceUnavailable, want: "Inf"},
		"negative":                         {metric: predicted, target: "negative", code: http.StatusServiceUnavailable, want: "-1"},
		"several series":                   {metric: predicted, target: "several", code: http.StatusUnprocessableEntity, want: "several series"},
		"two predictions of one target":    {metric: predicted, target: "twice", code: http.StatusUnprocessableEntity, want: "there are 2 (a, b)"},
		"a prediction of another owner":    {metric: predicted, target: "foreign", code: http.StatusNotFound, want: "no TimeSeriesPrediction"},
		"a metric that is not forecast":    {metric: predicted, target: "web", identifier: "resource.memory", code: http.StatusNotFound, want: "resource.memory"},
		"another namespace":                {metric: predicted, target: "web", namespace: "other", code: http.StatusBadRequest, want: "targetNamespace"},
		"an open window, beside a bad one": {metric: cron, target: "web", identifier: "cron", want: "9"},
		"a window of another place":        {metric: cron, target: "web", identifier: "cron", local: tokyo, want: "1"},
		"no crons":                         {metric: cron, target: "plain", identifier: "cron", code: http.StatusNotFound, want: "with crons"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, c.local, objects...)
			identifier, namespace := c.identifier, c.namespace
			if identifier == "" {
				identifier = "resource.cpu"
			}
			if namespace == "" {
				namespace = "shop"
			}

			selector := labels.SelectorFromSet(labels.Set{
				"targetKind": "Deployment", "targetName": c.target, "targetNamespace": "shop", "resourceIdentifier": identifier,
			})

			list, err := p.GetExternalMetric(t.Context(), namespace, selector, provider.ExternalMetricInfo{Metric: c.metric})
			if c.code != 0 {
				wantStatus(t, err, c.code, c.want)
				return
			}

			if err != nil || len(list.Items) != 1 || list.Items[0].Value.String() != c.want {
				t.Fatalf("got %v, %v; want %s", list, err, c.want)
			}

			if c.metric == predicted && !list.Items[0].Timestamp.Time.Equal(noon().Add(-time.Minute)) {
				t.Errorf("timestamp is %s, want that of the forecast, %s", list.Items[0].Timestamp, noon().Add(-time.Minute))
			}
		})
	}
}

func wantStatus(t *testing.T, err error, code int32, say string) {
	t.Helper()

	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code || !strings.Contains(err.Error(), say) {
		t.Errorf("got %v, want code %d and %q", err, code, say)
	}
}

// TestUnsynced checks that an unsynced cache is unavailable, and not an empty one.
func TestUnsynced(t *testing.T) {
	p := newProvider(t, nil)
	p.CheckSynced = func() error { return fmt.Errorf("not read yet") }
	selector := labels.SelectorFromSet(labels.Set{"targetKind": "Deployment", "targetName": "web", "targetNamespace": "shop", "resourceIdentifier": "resource.cpu"})
	_, err := p.GetExternalMetric(t.Context(), "shop", selector, provider.ExternalMetricInfo{Metric: autoscalingv1alpha1.MetricPrediction})
	wantStatus(t, err, http.StatusServiceUnavailable, "not read yet")
}

func TestLean(t *testing.T) {
	values := []string{"1", "", "2.50000", "NaN"}
	tsp := newPrediction("web", "web", values...)
	tsp.Status.PredictionMetrics[0].Scaling = &predictionv1alpha1.ScalingChoice{Use: true, Ledger: "state"}
	tsp.Annotations = map[string]string{"a": "b"}
	tsp.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}

	got, err := cranemetrics.TrimObject(tsp)
	lean, ok := got.(*predictionv1alpha1.TimeSeriesPrediction)
	if err != nil || !ok || lean.ManagedFields != nil || lean.Annotations != nil || len(lean.Status.PredictionMetrics) != 1 {
		t.Fatalf("TrimObject() = %+v, %v, want the status alone", got, err)
	}

	m := lean.Status.PredictionMetrics[0]
	if !m.Scaling.Use || m.Scaling.Ledger != "" {
		t.Errorf("TrimObject() keeps scaling %+v, want Use without the ledger", m.Scaling)
	}

	for i, s := range m.Prediction[0].Samples {
		if s.Value != values[i] {
			t.Errorf("sample %d is %q, want %q", i, s.Value, values[i])
		}
	}
}
