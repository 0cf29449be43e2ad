// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package enqueue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestOnConflict checks that lost updates alone are retried without an error.
func TestOnConflict(t *testing.T) {
	lost := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web", errors.New("modified"))
	owned := apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.replicas"}}, "1 conflict")
	other := errors.New("connection refused")
	for name, tc := range map[string]struct {
		err   error
		retry bool
	}{
		"success":                     {nil, false},
		"another error":               {other, false},
		"lost update":                 {lost, true},
		"wrapped lost update":         {fmt.Errorf("writing the status: %w", lost), true},
		"two lost updates":            {errors.Join(lost, fmt.Errorf("writing the status: %w", lost)), true},
		"lost update and another":     {errors.Join(lost, other), false},
		"wrapped, and another":        {fmt.Errorf("reconciling: %w", errors.Join(lost, other)), false},
		"two wrapped, one owned":      {fmt.Errorf("reconciling: %w, %w", lost, owned), false},
		"field of another manager":    {fmt.Errorf("applying: %w", owned), false},
		"an object that exists twice": {apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, "web"), false},
	} {
		t.Run(name, func(t *testing.T) {
			inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{RequeueAfter: 7}, tc.err
			})

			result, err := OnConflict(inner).Reconcile(t.Context(), reconcile.Request{})
			switch {
			case tc.retry && (err != nil || result.RequeueAfter != conflictDelay):
				t.Errorf("%+v, %v; want another reconcile without an error", result, err)
			case !tc.retry && (!errors.Is(err, tc.err) || result.RequeueAfter != 7):
				t.Errorf("%+v, %v; want what the reconciler returned", result, err)
			}
		})
	}
}

// TestDelayAfterConflicts checks that the delay doubles with consecutive conflicts of one request, up to a maximum, and starts anew after a success.
func TestDelayAfterConflicts(t *testing.T) {
	lost := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web", errors.New("modified"))
	var outcome error
	wrapped := OnConflict(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, outcome }))

	delay := func(name string) time.Duration {
		result, err := wrapped.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		if err != nil {
			t.Fatal(err)
		}

		return result.RequeueAfter
	}

	outcome = lost
	for i, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
		if got := delay("web"); got != want {
			t.Errorf("conflict %d: delay %s, want %s", i+1, got, want)
		}
	}

	for range 10 {
		delay("web")
	}

	if got := delay("web"); got != maxConflictDelay {
		t.Errorf("delay %s after many conflicts, want %s", got, maxConflictDelay)
	}
	if got := delay("other"); got != conflictDelay {
		t.Errorf("delay %s of another object, want %s", got, conflictDelay)
	}

	outcome = nil
	delay("web")
	outcome = lost

	if got := delay("web"); got != conflictDelay {
		t.Errorf("delay %s after a success, want %s", got, conflictDelay)
	}
}
