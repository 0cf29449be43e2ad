// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/controller/targets"
	"crane.io/crane/internal/workload"
	"crane.io/crane/pkg/adoption"
)

// load enters into the book, once, what the annotations of all workloads say: a leader that has just begun must not hand out
// budgets that are spent.
func (r *Reconciler) load(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded {
		return nil
	}
	for _, kind := range workload.WatchedKinds() {
		list, err := listOf(r.Client.Scheme(), kind.GVK)
		if err != nil {
			return err
		}
		if err := r.Client.List(ctx, list); err != nil {
			return fmt.Errorf("listing %s: %w", kind.GVK.Kind, err)
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			if object, ok := o.(client.Object); ok {
				r.enter(kind.GVK, object)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("listing %s: %w", kind.GVK.Kind, err)
		}
	}
	r.loaded = true
	return nil
}

func listOf(scheme *runtime.Scheme, kind schema.GroupVersionKind) (client.ObjectList, error) {
	object, err := scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", kind.Kind, err)
	}
	list, ok := object.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("listing %s: %T is no list", kind.Kind, object)
	}
	return list, nil
}

func (r *Reconciler) enter(kind schema.GroupVersionKind, o client.Object) {
	key := targets.Key{Group: kind.Group, Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
	for what, annotation := range stateKeys() {
		if state, err := adoption.ParseState(o.GetAnnotations()[annotation]); err == nil {
			r.book.Set(bookKey(key, what), state)
		}
	}
}

// begun tells, from the cache, of which types something is written down on a target.
func (r *Reconciler) begun(ctx context.Context, key targets.Key) map[analysisv1alpha1.AnalysisType]bool {
	out := map[analysisv1alpha1.AnalysisType]bool{}
	for _, kind := range workload.WatchedKinds() {
		if kind.GVK.Group != key.Group || kind.GVK.Kind != key.Kind {
			continue
		}
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, kind.Object); err != nil {
			return out // It is gone, or its event comes.
		}
		for what, annotation := range stateKeys() {
			_, out[what] = kind.Object.GetAnnotations()[annotation]
		}
	}
	return out
}

func (r *Reconciler) underWay() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(r.book.UnderWay())
}

func (r *Reconciler) breakerOpen() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if open, _, _ := r.book.Breaker(r.Settings.Policy, r.Clock.Now()); open {
		return 1
	}
	return 0
}
