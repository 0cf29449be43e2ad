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
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// conflictDelay is the time until an object is reconciled again after a conflict: the cache has the newer version by then, as a rule.
	conflictDelay = 200 * time.Millisecond
	// maxConflictDelay bounds the delay after consecutive conflicts, each of which doubles it.
	maxConflictDelay = 30 * time.Second
)

// OnConflict wraps a reconciler: a write that lost against a newer version of its object is logged as information, and the request is
// reconciled again. Without it each is an error of the log, though nothing failed. While the cache lags behind a busy API server each repetition
// is another conflict, which costs the server almost as much as a write; hence the growing delay. A change of the spec is reconciled at once.
func OnConflict[R comparable](inner reconcile.TypedReconciler[R]) reconcile.TypedReconciler[R] {
	delays := workqueue.NewTypedItemExponentialFailureRateLimiter[R](conflictDelay, maxConflictDelay)
	return reconcile.TypedFunc[R](func(ctx context.Context, request R) (reconcile.Result, error) {
		result, err := inner.Reconcile(ctx, request)
		if err == nil || !isConflict(err) {
			delays.Forget(request)
			return result, err
		}

		log.FromContext(ctx).Info("the object changed while it was reconciled; reconciling it again", "cause", err.Error())
		return reconcile.Result{RequeueAfter: delays.When(request)}, nil
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
