// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/hpametrics"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/scaling"
)

type scaler = autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler

func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func utilization(name corev1.ResourceName, percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}
}

// web returns an autoscaler of the Deployment web, from 2 to 20 replicas at 60 % of the CPU request, with a forecast.
func web(edit ...func(*scaler)) *scaler {
	e := &scaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-of-web", Generation: 1, CreationTimestamp: metav1.NewTime(noon())},
		Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    new(int32(2)), MaxReplicas: 20, Metrics: []autoscalingv2.MetricSpec{utilization(corev1.ResourceCPU, 60)},
			Prediction: &autoscalingv1alpha1.Prediction{
				PredictionWindowSeconds: new(int32(3600)), PredictionAlgorithm: &autoscalingv1alpha1.PredictionAlgorithm{},
			},
		},
	}

	for _, f := range edit {
		f(e)
	}

	return e
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}},
			}}}},
		},
		Status: appsv1.DeploymentStatus{Replicas: replicas},
	}
}

// writeCounter counts the write requests to the API server.
type writeCounter struct{ count int }

func (w *writeCounter) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.count++
			o.SetUID(types.UID("uid-of-" + o.GetName()))
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			w.count++
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.count++
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.count++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}
}

// fakeMetrics are current metrics by resource identifier.
type fakeMetrics map[string]hpametrics.Value

func (r fakeMetrics) Read(_ context.Context, _, _ string, m *autoscalingv2.MetricSpec, _ time.Time) (hpametrics.Value, error) {
	v, ok := r[scalingmetric.Identifiers([]autoscalingv2.MetricSpec{*m})[0]]
	if !ok {
		return hpametrics.Value{}, scaling.ErrNoMetric
	}

	return v, nil
}

// fixture is a reconciler with a fake API server.
type fixture struct {
	*Reconciler
	clock       *clocktesting.FakeClock
	served      MetricAvailability
	writes      writeCounter
	values      fakeMetrics
	rules       *promadapter.Rules
	series      *promadapter.Listing
	rulesUnread bool
}

func newFixture(t testing.TB, objects ...client.Object) *fixture {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), predictionv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	b := &fixture{clock: clocktesting.NewFakeClock(noon()), served: MetricAvailability{Served: true}, values: fakeMetrics{}}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(b.writes.funcs()).
		WithStatusSubresource(&scaler{}, &predictionv1alpha1.TimeSeriesPrediction{}, &autoscalingv1alpha1.Substitute{}, &autoscalingv2.HorizontalPodAutoscaler{})

	if err := AddIndexes(t.Context(), indexer{builder}); err != nil {
		t.Fatal(err)
	}

	c := builder.Build()
	b.Reconciler = &Reconciler{
		Settings: Settings{Zones: scalingmetric.NewZones(false)},
		Client:   c, Live: c, Targets: &workload.ScaleClient{Cached: c, Live: c, Client: c}, Requests: &PodRequestReader{Pods: c},
		Queries: &QueryBuilder{
			Selector: func(metric string, own ...prometheus.Matcher) (string, error) {
				texts := make([]string, len(own))
				for i, m := range own {
					texts[i] = m.String()
				}

				return metric + "{" + strings.Join(texts, ",") + "}", nil
			},
			Pods: prometheus.PodMatchers, Rules: func() ListedRules {
				return ListedRules{Rules: b.rules, Series: b.series, Pending: b.rulesUnread, Problem: b.rules.Refused()}
			},
		},
		Availability: func() MetricAvailability { return b.served }, Preview: &PreviewCalculator{Metrics: b.values}, Events: events.NewFakeRecorder(10_000), Clock: b.clock,
	}

	return b
}

// indexer adds indexes to a fake client.
type indexer struct{ b *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, f client.IndexerFunc) error {
	i.b.WithIndex(o, field, f)
	return nil
}

// reconcile reconciles an autoscaler once and returns it with the number of writes.
func (b *fixture) reconcile(t testing.TB, name string) (*scaler, int) {
	t.Helper()

	before := b.writes.count
	key := types.NamespacedName{Namespace: "shop", Name: name}
	if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}

	e := &scaler{}
	if err := b.Client.Get(t.Context(), key, e); err != nil {
		t.Fatal(err)
	}

	return e, b.writes.count - before
}

// hpa returns an HPA, nil for none.
func (b *fixture) hpa(t testing.TB, name string) *autoscalingv2.HorizontalPodAutoscaler {
	t.Helper()

	h := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := b.Client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: name}, h); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}

		t.Fatal(err)
	}

	return h
}
