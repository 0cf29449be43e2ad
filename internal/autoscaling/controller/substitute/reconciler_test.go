// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package substitute

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// TestSubstitute checks that a Substitute copies pods and replicas of the workload, keeps the replicas that an HPA sets, and resets
// them after staleAfter.
func TestSubstitute(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	four := int32(4)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: appsv1.DeploymentStatus{Replicas: 3}}
	d.Spec.Replicas = &four
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	s := &autoscalingv1alpha1.Substitute{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ehpa-web"}}
	s.Spec.SubstituteTargetRef = autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"}
	writes := 0

	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(d, s).WithStatusSubresource(s).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}).Build()

	clock := clocktesting.NewFakeClock(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC))
	r := &Reconciler{Client: c, Targets: &workload.ScaleClient{Cached: c, Live: c, Client: c}, Clock: clock}
	key := types.NamespacedName{Namespace: "shop", Name: "ehpa-web"}

	reconcile := func(wantWrites int) {
		t.Helper()

		before := writes
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}

		if err := c.Get(t.Context(), key, s); err != nil {
			t.Fatal(err)
		}

		if got := writes - before; got != wantWrites {
			t.Errorf("%d writes, want %d", got, wantWrites)
		}
	}

	reconcile(2)
	if *s.Spec.Replicas != 4 || s.Status.Replicas != 3 || s.Status.LabelSelector != "app=web" {
		t.Errorf("spec %+v, status %+v, want 4 desired and 3 current replicas of app=web", s.Spec, s.Status)
	}

	reconcile(0)
	nine := int32(9)

	s.Spec.Replicas = &nine // like an HPA
	if err := c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	for range 20 {
		reconcile(0)
		clock.Step(15 * time.Second)
	}

	if *s.Spec.Replicas != 9 {
		t.Errorf("spec.replicas = %d, want the 9 that the HPA wrote", *s.Spec.Replicas)
	}

	reconcile(1)
	if *s.Spec.Replicas != 4 {
		t.Errorf("spec.replicas = %d, want the 4 of the target", *s.Spec.Replicas)
	}
	if err := c.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}

	reconcile(0)
	if err := c.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil || r.differingSince.Len() > 0 {
		t.Errorf("Reconcile returned error %v and remembers %d substitutes, want none", err, r.differingSince.Len())
	}
}
