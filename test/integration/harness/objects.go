// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// EnsureNamespace creates a namespace unless it exists.
func EnsureNamespace(t testing.TB, c client.Client, name string) {
	t.Helper()

	err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// Create creates objects and their namespaces, and deletes the objects at the end of the test.
func Create(t testing.TB, c client.Client, objects ...client.Object) {
	t.Helper()

	for _, o := range objects {
		if ns := o.GetNamespace(); ns != "" {
			EnsureNamespace(t, c, ns)
		}

		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { Delete(t, c, o) })
	}
}

// Delete deletes an object, if it exists. Cleanup functions may call it.
func Delete(t testing.TB, c client.Client, o client.Object) {
	t.Helper()

	if err := c.Delete(context.WithoutCancel(t.Context()), o); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}

// Events returns the events about an object with a reason. An empty namespace selects all namespaces.
func Events(ctx context.Context, c client.Reader, namespace, kind, name, reason string) ([]eventsv1.Event, error) {
	var list eventsv1.EventList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}

	var out []eventsv1.Event
	for _, e := range list.Items {
		if e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == reason {
			out = append(out, e)
		}
	}

	return out, nil
}

// ConditionText returns the status and reason of a condition, such as True/Ready, or "absent".
func ConditionText(conditions []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return "absent"
	}

	return string(c.Status) + "/" + c.Reason
}

// AwaitRule waits until the Ready condition of a RecommendationRule has a reason for the current generation, and returns
// the rule.
func AwaitRule(t testing.TB, bound time.Duration, c client.Reader, name, reason string) *analysisv1alpha1.RecommendationRule {
	t.Helper()

	rule := &analysisv1alpha1.RecommendationRule{}
	Eventually(t.Context(), t, bound, "rule "+name+" is Ready="+reason, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: name}, rule); err != nil {
			return err
		}

		ready := meta.FindStatusCondition(rule.Status.Conditions, analysisv1alpha1.ConditionReady)
		if ready == nil || ready.Reason != reason || ready.ObservedGeneration != rule.Generation {
			return fmt.Errorf("condition %+v of generation %d", ready, rule.Generation)
		}

		return nil
	})

	return rule
}
