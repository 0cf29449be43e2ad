// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
)

const sampleValue = "resourceRequest:\n  containers:\n  - containerName: app\n    target:\n      cpu: 250m\n"

// result is what became of one Recommendation after one look at it.
type result struct {
	rec        *analysisv1alpha1.Recommendation
	target     *appsv1.Deployment
	events     int
	err        error
	reconciler *Reconciler
}

// reconcileOne reconciles one Recommendation of Deployment shop/web beside other objects.
func reconcileOne(t *testing.T, rec *analysisv1alpha1.Recommendation, funcs interceptor.Funcs, others ...client.Object) result {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(others, rec)...).
		WithStatusSubresource(&analysisv1alpha1.Recommendation{}).WithInterceptorFuncs(funcs).
		WithIndex(&analysisv1alpha1.Recommendation{}, targetindex.Index, targetindex.IndexValues).Build()
	recorder := events.NewFakeRecorder(100)
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	out := result{rec: &analysisv1alpha1.Recommendation{}, target: &appsv1.Deployment{}, reconciler: &Reconciler{
		Client: c, Live: c, Events: recorder, Clock: clock, Metrics: NewMetrics(clock.Now, time.Hour),
	}}

	_, out.err = out.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(rec)})
	out.events = len(recorder.Events)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(rec), out.rec); err != nil {
		if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}

		out.rec = nil
	}

	if err := client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, out.target)); err != nil {
		t.Fatal(err)
	}

	return out
}

func adoptable(name string, adoption analysisv1alpha1.AdoptionType) *analysisv1alpha1.Recommendation {
	rec := recommendationOf(name, time.Unix(1000, 0), time.Unix(2000, 0))
	rec.Labels = map[string]string{analysisv1alpha1.LabelRuleUID: "uid"}
	rec.Spec.AdoptionType = adoption
	rec.Status.RecommendedValue = sampleValue

	return rec
}

func TestTargetGone(t *testing.T) {
	if got := reconcileOne(t, adoptable("x", analysisv1alpha1.AdoptionTypeStatus), interceptor.Funcs{}); got.err != nil || got.rec != nil || got.events != 1 {
		t.Errorf("Reconcile of a rule's Recommendation without a target: %+v, want it deleted with 1 event", got)
	}

	// That of a user stays, and its target, which may be of any kind, is not read.
	own := adoptable("x", analysisv1alpha1.AdoptionTypeStatus)
	own.Labels = nil
	own.Spec.TargetRef.APIVersion = "v1"
	own.Spec.TargetRef.Kind = "Secret"
	read := 0

	got := reconcileOne(t, own, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, partial := o.(*metav1.PartialObjectMetadata); partial {
				read++
			}

			return c.Get(ctx, key, o, opts...)
		},
	})

	if got.err != nil || got.rec == nil || got.events != 0 || read != 0 {
		t.Errorf("Reconcile of a user's Recommendation: %+v after %d reads of the target, want it kept and no read", got, read)
	}

	// A cache that is behind must not cost the recommendation: the API server is asked before.
	cached := 0
	got = reconcileOne(t, adoptable("x", analysisv1alpha1.AdoptionTypeStatus), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, typed := o.(*appsv1.Deployment); typed && cached == 0 {
				cached++
				return apierrors.NewNotFound(schema.GroupResource{Resource: "deployments"}, key.Name)
			}

			return c.Get(ctx, key, o, opts...)
		},
	}, deployment("web"))

	if got.err != nil || got.rec == nil || cached != 1 {
		t.Errorf("Reconcile with a stale cache: %+v after %d reads of it, want the Recommendation kept after 1", got, cached)
	}
}

func TestKindGone(t *testing.T) {
	rec := adoptable("x", analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
	rec.Spec.TargetRef = corev1.ObjectReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Namespace: "shop", Name: "web"}
	got := reconcileOne(t, rec, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, partial := o.(*metav1.PartialObjectMetadata); partial {
				return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "argoproj.io", Kind: "Rollout"}}
			}

			return c.Get(ctx, key, o, opts...)
		},
	})

	if got.err != nil || got.rec == nil {
		t.Errorf("Reconcile with a kind that is not installed: %+v, want the Recommendation kept", got)
	}
}
