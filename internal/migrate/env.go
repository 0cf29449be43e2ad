// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pollInterval is the time between two reads of an object that is waited for.
const pollInterval = 500 * time.Millisecond

// env is what operations need. All writes are idempotent: an operation that was interrupted is repeated.
type env struct {
	client    client.Client
	clock     clock.Clock
	originals map[Ref]*Object
	// timeout bounds each wait.
	timeout time.Duration
	// dryRun lets the server check the writes, which it does not store, and skips waits.
	dryRun bool
	log    func(format string, args ...any)
}

// propagation is how dependents of a deleted object are treated.
type propagation metav1.DeletionPropagation

const (
	propagateDefault = propagation(metav1.DeletePropagationBackground)
	propagateOrphan  = propagation(metav1.DeletePropagationOrphan)
)

// get returns an object; nil if it or its kind does not exist.
func (e *env) get(ctx context.Context, ref Ref) (*Object, error) {
	o := ref.empty()
	err := e.client.Get(ctx, ref.key(), o)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", ref, err)
	}

	return o, nil
}

// remove deletes an object, if it exists, and waits until it is gone.
func (e *env) remove(ctx context.Context, ref Ref, how propagation) error {
	o, err := e.get(ctx, ref)
	if err != nil || o == nil {
		return err
	}

	if o.GetDeletionTimestamp() == nil {
		err = e.client.Delete(ctx, o, client.PropagationPolicy(how), client.Preconditions{UID: new(o.GetUID())})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting %s: %w", ref, err)
		}
	}

	if ref.Kind == "Namespace" {
		// It stays as long as any aggregated API is unavailable, as gocrane's is where it is installed in another namespace.
		return nil
	}

	return e.wait(ctx, ref.String()+" is deleted", func(ctx context.Context) (bool, error) {
		now, err := e.get(ctx, ref)
		return now == nil || now.GetUID() != o.GetUID(), err
	})
}

// create creates an object.
func (e *env) create(ctx context.Context, o *Object) error {
	o = stripped(o)
	name := o.GetName()
	err := e.client.Create(ctx, o, client.FieldOwner(fieldOwner))
	if e.dryRun && apierrors.IsAlreadyExists(err) {
		// A dry run has not deleted the predecessor.
		o = stripped(o)
		o.SetName(name + "-dry-run")
		err = e.client.Create(ctx, o, client.FieldOwner(fieldOwner))
	}

	if e.dryRun && (apierrors.IsNotFound(err) || meta.IsNoMatchError(err)) {
		return nil // a namespace or a kind that an earlier step creates
	}

	if err != nil {
		return fmt.Errorf("creating %s: %w", RefOf(o), err)
	}

	return nil
}

// put creates or replaces an object. What a server allocates, and what Crane's processes write into objects of Crane, stays.
func (e *env) put(ctx context.Context, desired *Object) error {
	return e.replace(ctx, desired, func(now *Object) bool { return covers(now.Object, desired.Object) && !e.hasLeftovers(now, desired) })
}

// restore brings an object back to what it was. Its status is the business of its controller.
func (e *env) restore(ctx context.Context, ref Ref) error {
	original := e.originals[ref]
	if original == nil {
		return e.remove(ctx, ref, propagateDefault)
	}

	original, err := e.withOwners(ctx, original)
	if err != nil {
		return err
	}

	return e.replace(ctx, original, func(now *Object) bool { return sameContent(now, original) })
}

// replace creates an object, or replaces it unless equal returns true.
func (e *env) replace(ctx context.Context, object *Object, equal func(now *Object) bool) error {
	ref := RefOf(object)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := e.get(ctx, ref)
		if err != nil {
			return err
		}

		if now == nil {
			return e.create(ctx, object)
		}

		if equal(now) {
			return nil
		}

		update := stripped(object)
		update.SetResourceVersion(now.GetResourceVersion())
		keepAllocated(now, update)

		err = e.client.Update(ctx, update, client.FieldOwner(fieldOwner))
		// Some fields cannot be changed, such as selectors.
		if apierrors.IsInvalid(err) && recreatable(ref) {
			if err := e.remove(ctx, ref, propagateDefault); err != nil {
				return err
			}

			return e.create(ctx, object)
		}

		if err != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("writing %s: %w", ref, err)
		}

		return err
	})
}

// recreatable reports whether an object with an immutable field that differs may be deleted and created: it holds no data.
func recreatable(ref Ref) bool {
	return ref.Kind == "ClusterRoleBinding" || ref.Kind == "RoleBinding"
}

// keepAllocated copies what other processes write and a manifest does not have.
func keepAllocated(now, update *Object) {
	if now.GetKind() == "ServiceAccount" {
		for _, field := range []string{"secrets", "imagePullSecrets"} {
			if v, ok := now.Object[field]; ok && update.Object[field] == nil {
				update.Object[field] = v
			}
		}
	}
}

// hasLeftovers reports whether an object has labels or annotations of its predecessor, such as those of Helm, that Crane's lacks.
func (e *env) hasLeftovers(now, desired *Object) bool {
	original := e.originals[RefOf(desired)]
	if original == nil {
		return false
	}

	leftover := func(now, desired, original map[string]string) bool {
		for key := range original {
			if _, stays := desired[key]; !stays && now[key] != "" {
				return true
			}
		}

		return false
	}

	return leftover(now.GetLabels(), desired.GetLabels(), original.GetLabels()) || leftover(now.GetAnnotations(), desired.GetAnnotations(), original.GetAnnotations())
}

// wait polls until a condition holds.
func (e *env) wait(ctx context.Context, what string, check func(context.Context) (bool, error)) error {
	if e.dryRun {
		return nil
	}

	deadline := e.clock.Now().Add(e.timeout)
	for first := true; ; first = false {
		ok, err := check(ctx)
		if ok || err != nil {
			return err
		}

		if !e.clock.Now().Before(deadline) {
			return fmt.Errorf("not within %s: %s; mend the cause and run the command again, or undo", e.timeout, what)
		}

		// What holds at once is not logged.
		if first {
			e.log("waiting until %s", what)
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.clock.After(pollInterval):
		}
	}
}
