// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

// TestHPAScalesOnAForecast checks that the HPA controller, as its own service account, scales on the forecast, and that an outdated
// forecast leaves the replicas unchanged.
func TestHPAScalesOnAForecast(t *testing.T) {
	start(t)
	c := newClient(t)
	clients := clientset()
	ns := namespaceFor(t)
	f := newForecast(ns, "shop", valuesWithPeak(8, "2.9")...)
	f.write(t, c)

	pod := map[string]string{"app": "shop"}
	if _, err := clients.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: pod},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pod},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "shop", Image: "shop"}}},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	half := resource.MustParse("500m")
	hpas := clients.AutoscalingV2().HorizontalPodAutoscalers(ns)
	if _, err := hpas.Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop"},
			MinReplicas:    new(int32(1)), MaxReplicas: 20,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
				Metric: autoscalingv2.MetricIdentifier{
					Name:     autoscalingv1alpha1.MetricPrediction,
					Selector: &metav1.LabelSelector{MatchLabels: f.key().MatchLabels()},
				},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &half},
			}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	// 2.9 cores at half a core each are six pods; rounded to whole cores they would be four.
	eventually(t, "six replicas", func(ctx context.Context) error { return checkReplicas(ctx, ns, 6) })

	f.from = time.Now().Add(-time.Hour)
	f.values = []string{"0.1", "0.1"}
	f.write(t, c)

	eventually(t, "the HPA says why it does not scale", func(ctx context.Context) error {
		hpa, err := hpas.Get(ctx, "shop", metav1.GetOptions{})
		if err != nil {
			return err
		}

		for _, cond := range hpa.Status.Conditions {
			if cond.Type == autoscalingv2.ScalingActive && cond.Status == corev1.ConditionFalse && strings.Contains(cond.Message, "the forecast is out of date") {
				return nil
			}
		}

		return fmt.Errorf("conditions %v", hpa.Status.Conditions)
	})

	if err := checkReplicas(t.Context(), ns, 6); err != nil {
		t.Error(err)
	}
}

func checkReplicas(ctx context.Context, ns string, want int32) error {
	d, err := clientset().AppsV1().Deployments(ns).Get(ctx, "shop", metav1.GetOptions{})
	if err == nil && *d.Spec.Replicas != want {
		err = fmt.Errorf("%d replicas, want %d", *d.Spec.Replicas, want)
	}

	return err
}

// TestForecastsOverTheAggregationLayer reads values like kubectl get --raw.
func TestForecastsOverTheAggregationLayer(t *testing.T) {
	start(t)
	c := newClient(t)
	ns := namespaceFor(t)
	values := valuesWithPeak(8, "0.90001")
	values[len(values)-1] = "7" // After the window.
	f := newForecast(ns, "web", values...)
	f.write(t, c)
	path := forecastPath(autoscalingv1alpha1.MetricPrediction, f.key())

	eventually(t, "the forecast is served", func(ctx context.Context) error {
		values, err := readExternal(ctx, path)
		if err != nil {
			return err
		}

		if len(values) != 1 {
			return fmt.Errorf("%d values", len(values))
		}

		v := values[0]
		if v.Value.MilliValue() != 901 || !v.Timestamp.Equal(&metav1.Time{Time: f.from.Truncate(time.Second)}) ||
			v.WindowSeconds == nil || *v.WindowSeconds != 600 {
			return fmt.Errorf("got %+v, want 901m made at %s for 600 s", v, f.from)
		}

		return nil
	})

	for name, bad := range map[string]struct {
		path  string
		code  int32
		parts []string
	}{
		"a selector that matches nothing": {
			forecastPath(autoscalingv1alpha1.MetricPrediction, newForecast(ns, "missing").key()), http.StatusNotFound,
			[]string{"Deployment " + ns + "/missing", "there is no TimeSeriesPrediction"},
		},
		"a selector that may mean thousands": {
			externalPath(ns, autoscalingv1alpha1.MetricPrediction, ""), http.StatusBadRequest, []string{"is missing"},
		},
		"another namespace": {
			externalPath("default", autoscalingv1alpha1.MetricPrediction, "targetKind=Deployment,targetName=web,targetNamespace="+ns+",resourceIdentifier=resource.cpu"),
			http.StatusBadRequest,
			[]string{"targetNamespace", "default"},
		},
		"a metric without a source": {externalPath(ns, "queue_length", ""), http.StatusNotFound, []string{"queue_length", "no rule"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := raw(t.Context(), bad.path)
			if err := checkStatus(err, bad.code, bad.parts...); err != nil {
				t.Error(err)
			}
		})
	}
}
