// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// TestNodesTriedAgain checks that permanent failures are retried after a while, because no event reports a freed
// name, and that transient ones are returned as errors.
func TestNodesTriedAgain(t *testing.T) {
	kind := schema.GroupKind{Group: predictionv1alpha1.GroupVersion.Group, Kind: "TimeSeriesPrediction"}
	resource := schema.GroupResource{Group: kind.Group, Resource: "timeseriespredictions"}
	for name, test := range map[string]struct {
		refusal error
		foreign bool
		again   time.Duration
		fails   bool
	}{
		"made":           {},
		"taken":          {foreign: true, again: refusedRetry},
		"invalid":        {refusal: apierrors.NewInvalid(kind, "x", nil), again: refusedRetry},
		"busy":           {refusal: apierrors.NewTooManyRequests("busy", 1), fails: true},
		"not served now": {refusal: apierrors.NewNotFound(resource, ""), fails: true},
		"fails":          {refusal: apierrors.NewInternalError(errors.New("etcd")), fails: true},
	} {
		scheme := runtime.NewScheme()
		if err := errors.Join(predictionv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
			t.Fatal(err)
		}

		cnp := &predictionv1alpha1.ClusterNodePrediction{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "all", UID: "u"}}
		cnp.Spec.Template = &predictionv1alpha1.TimeSeriesPredictionTemplate{}
		cnp.Spec.NodeSelector = map[string]string{"zone": "a"}

		objects := []client.Object{cnp, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: cnp.Spec.NodeSelector}}}
		if test.foreign {
			objects = append(objects, &predictionv1alpha1.TimeSeriesPrediction{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: predictionName("all", "a")}})
		}

		attempts := 0
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(cnp).
			WithIndex(&predictionv1alpha1.TimeSeriesPrediction{}, indexOwner, ownerUID).
			WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				attempts++
				if test.refusal != nil {
					return test.refusal
				}

				return w.Create(ctx, o, opts...)
			}}).Build()

		r := &NodeReconciler{Client: c, Live: c, Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cnp)})
		if (err != nil) != test.fails || result.RequeueAfter != test.again {
			t.Errorf("%s: Reconcile again after %s, %v, want %s and an error: %t", name, result.RequeueAfter, err, test.again, test.fails)
		}
		if test.foreign != (attempts == 0) {
			t.Errorf("%s: %d attempts to create it; want none only if the cache has the name", name, attempts)
		}
	}
}

// TestNodesAreBounded: an empty selector selects all nodes in Crane's own namespace and none elsewhere, where one that all nodes match selects
// maxTenantNodes.
func TestNodesAreBounded(t *testing.T) {
	linux := map[string]string{"kubernetes.io/os": "linux"}
	for name, test := range map[string]struct {
		namespace string
		selector  map[string]string
		nodes     int
		want      int
		reason    string
	}{
		"empty in the system namespace": {"crane-system", nil, maxTenantNodes + 1, maxTenantNodes + 1, predictionv1alpha1.ReasonAllCreated},
		"empty elsewhere":               {"shop", nil, 3, 0, predictionv1alpha1.ReasonNoNodeSelector},
		"all in the system namespace":   {"crane-system", linux, maxTenantNodes + 1, maxTenantNodes + 1, predictionv1alpha1.ReasonAllCreated},
		"all elsewhere":                 {"shop", linux, maxTenantNodes + 1, maxTenantNodes, predictionv1alpha1.ReasonTooManyNodes},
		"as many as allowed":            {"shop", linux, maxTenantNodes, maxTenantNodes, predictionv1alpha1.ReasonAllCreated},
	} {
		scheme := runtime.NewScheme()
		if err := errors.Join(predictionv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
			t.Fatal(err)
		}

		cnp := &predictionv1alpha1.ClusterNodePrediction{ObjectMeta: metav1.ObjectMeta{Namespace: test.namespace, Name: "all", UID: "u"}}
		cnp.Spec.Template = &predictionv1alpha1.TimeSeriesPredictionTemplate{}
		cnp.Spec.NodeSelector = test.selector

		objects := []client.Object{cnp}
		for i := range test.nodes {
			objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%02d", i), Labels: linux}})
		}

		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(cnp).
			WithIndex(&predictionv1alpha1.TimeSeriesPrediction{}, indexOwner, ownerUID).Build()

		r := &NodeReconciler{Client: c, Live: c, Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), SystemNamespace: "crane-system"}
		for range 2 { // The second pass keeps what the first one created.
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cnp)}); err != nil {
				t.Fatal(err)
			}
		}

		var list predictionv1alpha1.TimeSeriesPredictionList
		if err := errors.Join(c.List(t.Context(), &list), c.Get(t.Context(), client.ObjectKeyFromObject(cnp), cnp)); err != nil {
			t.Fatal(err)
		}

		ready := meta.FindStatusCondition(cnp.Status.Conditions, predictionv1alpha1.ConditionReady)
		if len(list.Items) != test.want || cnp.Status.CurrentNumberCreated != test.want || ready == nil || ready.Reason != test.reason {
			t.Errorf("%s: %d objects, want %d; status %+v", name, len(list.Items), test.want, cnp.Status)
		}
	}
}
