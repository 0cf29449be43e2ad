// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/series"
)

// source is a history in which every container of the named Deployments uses half a core and 100 MiB.
type source struct {
	deployments []string
	days        int
	fail        func(context.Context) error
	asked       []metrics.UsageRequest
}

func (s *source) Usage(ctx context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		s.asked = append(s.asked, req)
		if s.fail != nil {
			if err := s.fail(ctx); err != nil {
				yield(metrics.Chunk{}, err)
				return
			}
		}

		value := map[metrics.UsageKind]float64{metrics.CPU: 0.5, metrics.Memory: 100 << 20}[req.Resource]
		for _, name := range s.deployments {
			for d := range s.days {
				values := make([]float64, 24*12)
				for i := range values {
					values[i] = value
				}

				start := req.End.Add(-time.Duration(s.days-d) * 24 * time.Hour)
				chunk := metrics.Chunk{
					Key: metrics.ContainerKey{
						Workload: workload.Ref{Namespace: "shop", Kind: "Deployment", Name: name}, Pod: name + "-1", Container: "app",
					},
					Series: series.Series{Start: start, Step: 5 * time.Minute, Values: values},
				}
				if !yield(chunk, nil) {
					return
				}
			}
		}
	}
}

// fixture is a reconciler on a fake API.
type fixture struct {
	*RuleReconciler
	t      *testing.T
	clock  *clocktesting.FakePassiveClock
	events *events.FakeRecorder
	source *source
	writes atomic.Int64
	// refuse is asked before each write of a Recommendation.
	refuse func(write string, o client.Object) error
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	f := &fixture{
		t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 20, 12, 0, 30, 0, time.UTC)),
		events: events.NewFakeRecorder(1000), source: &source{deployments: []string{"web"}, days: 8},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&analysisv1alpha1.Recommendation{}, &analysisv1alpha1.RecommendationRule{}).
		WithIndex(&analysisv1alpha1.Recommendation{}, indexRuleUID, ruleUIDsOf).
		WithInterceptorFuncs(f.interceptors()).Build()

	f.RuleReconciler = &RuleReconciler{
		Client: c, Live: c, Lister: &workload.Lister{Sources: workload.CachedSources(c, c, pageSize), Scales: c, Scheme: scheme},
		Kinds: DiscoveryKinds{
			Mapper:    meta.NewDefaultRESTMapper(nil),
			Preferred: func() ([]*metav1.APIResourceList, error) { return nil, nil },
		},
		History: profile.Source{Capabilities: metrics.Capabilities{Usage: f.source}}, Settings: BuiltinRegistry().DefaultSettings, Namespace: "crane-system",
		ListTimeout: time.Minute, HistoryTimeout: time.Minute, Workers: 4, BatchSize: batchSize,
		Events: f.events, Metrics: NewMetrics(f.clock.Now, time.Hour), Clock: f.clock,
		Backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
	}

	return f
}

// interceptors count and refuse writes of Recommendations.
func (f *fixture) interceptors() interceptor.Funcs {
	write := func(kind string, o client.Object, do func() error) error {
		if _, ours := o.(*analysisv1alpha1.Recommendation); ours {
			if f.refuse != nil {
				if err := f.refuse(kind, o); err != nil {
					return err
				}
			}

			f.writes.Add(1)
		}

		return do()
	}

	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write("patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write("delete", o, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return write("status", o, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	}
}

// settle runs Reconcile until nothing is left to be tried again soon, with a clock that goes on by what is asked for.
func (f *fixture) settle() ctrl.Result {
	f.t.Helper()

	for range 50 {
		result := f.reconcile()
		if result.RequeueAfter == 0 || result.RequeueAfter > 10*time.Minute {
			return result
		}

		f.clock.SetTime(f.clock.Now().Add(result.RequeueAfter))
	}

	f.t.Fatal("the run did not end, want an end after a bounded number of tries")
	return ctrl.Result{}
}

// reconcile runs Reconcile once.
func (f *fixture) reconcile() ctrl.Result {
	f.t.Helper()

	result, err := f.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "rule"}})
	if err != nil {
		f.t.Fatal(err)
	}

	return result
}

func (f *fixture) rule() *analysisv1alpha1.RecommendationRule {
	f.t.Helper()

	r := &analysisv1alpha1.RecommendationRule{}
	if err := f.Client.Get(f.t.Context(), client.ObjectKey{Name: "rule"}, r); err != nil {
		f.t.Fatal(err)
	}

	return r
}

func (f *fixture) ready() (reason, message string) {
	f.t.Helper()

	c := meta.FindStatusCondition(f.rule().Status.Conditions, "Ready")
	if c == nil {
		return "", ""
	}

	return c.Reason, c.Message
}

func (f *fixture) all() map[string]analysisv1alpha1.Recommendation {
	f.t.Helper()

	var list analysisv1alpha1.RecommendationList
	if err := f.Client.List(f.t.Context(), &list); err != nil {
		f.t.Fatal(err)
	}

	out := map[string]analysisv1alpha1.Recommendation{}
	for _, r := range list.Items {
		out[r.Spec.TargetRef.Name] = r
	}

	return out
}

func (f *fixture) countEvents(reason string) int {
	n := 0
	for {
		select {
		case e := <-f.events.Events:
			if strings.Contains(e, reason) {
				n++
			}
		default:
			return n
		}
	}
}

func deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u-x", Labels: map[string]string{"app": name}},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("2")}},
		}}}}},
	}
}

func testRule(interval string) *analysisv1alpha1.RecommendationRule {
	return &analysisv1alpha1.RecommendationRule{
		ObjectMeta: metav1.ObjectMeta{Name: "rule", UID: "rule-uid", Generation: 1},
		Spec: analysisv1alpha1.RecommendationRuleSpec{
			ResourceSelectors: []analysisv1alpha1.ResourceSelector{{Kind: "Deployment"}},
			NamespaceSelector: analysisv1alpha1.NamespaceSelector{Any: true},
			RunInterval:       interval, Recommenders: []analysisv1alpha1.Recommender{{Name: "Resource"}},
		},
	}
}
