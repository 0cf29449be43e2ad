// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package enqueue

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// conflictDelay is the time until an object is reconciled again after a conflict; the cache has the newer version by then.
const conflictDelay = 200 * time.Millisecond

// OnConflict wraps a reconciler: a write that lost against a newer version of its object is logged as information, and the request is
// reconciled again. Without it each is an error of the log, though nothing failed.
func OnConflict[R comparable](inner reconcile.TypedReconciler[R]) reconcile.TypedReconciler[R] {
	return reconcile.TypedFunc[R](func(ctx context.Context, request R) (reconcile.Result, error) {
		result, err := inner.Reconcile(ctx, request)
		if err == nil || !isConflict(err) {
			return result, err
		}
		log.FromContext(ctx).Info("the object changed while it was reconciled; reconciling it again", "cause", err.Error())
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	})
}

// isConflict reports whether all parts of an error are conflicts with a newer version. An apply that conflicts with the owner of a field does
// not count: a retry does not help.
func isConflict(err error) bool {
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		parts := joined.Unwrap()
		return len(parts) > 0 && !slices.ContainsFunc(parts, func(part error) bool { return !isConflict(part) })
	}
	return apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}
