// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/pkg/adoption"
)

// loadBudgets reads the states of all workloads once, so that a new leader does not exceed budgets that are already spent.
func (r *Reconciler) loadBudgets(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.budgetsLoaded {
		return nil
	}

	err := targetsnapshot.LoadBudgets(ctx, r.budgets, r.Client, func(kind schema.GroupVersionKind) (client.ObjectList, error) {
		return newList(r.Client.Scheme(), kind)
	})
	if err != nil {
		return err
	}

	r.budgetsLoaded = true
	return nil
}

func newList(scheme *runtime.Scheme, kind schema.GroupVersionKind) (client.ObjectList, error) {
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

// typesWithState returns, from the cache, for which types a state is stored on the target; none for a target that does not exist. Other kinds
// than those of the cache are read from the API server if they may have one: after their Recommendation was deleted or switched off.
func (r *Reconciler) typesWithState(
	ctx context.Context, key targetindex.Key, all []analysisv1alpha1.Recommendation,
) (map[analysisv1alpha1.AnalysisType]bool, error) {
	out := map[analysisv1alpha1.AnalysisType]bool{}
	kind, watched := targetsnapshot.SupportedKind(key.Group, key.Kind)
	reader := client.Reader(r.Client)
	if !watched {
		other, ok := targetKind(r.Client.RESTMapper(), key, analysisv1alpha1.AnalysisTypeResource, nil)
		wasAdopted := func(rec analysisv1alpha1.Recommendation) bool { return rec.Status.Adoption != nil }
		if !ok || len(all) > 0 && !slices.ContainsFunc(all, wasAdopted) {
			return out, nil
		}

		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(other.GVK)
		kind.Object = object
		reader = r.Live
	}

	err := reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, kind.Object)
	if apierrors.IsNotFound(err) || !watched && apierrors.IsForbidden(err) { // What may not be read was not adopted either.
		return out, nil // An event follows if the cache lags.
	}
	if err != nil {
		return nil, fmt.Errorf("reading the adoption state of %s: %w", key, err)
	}

	for what, annotation := range targetsnapshot.StateAnnotations() {
		_, out[what] = kind.Object.GetAnnotations()[annotation]
	}

	return out, nil
}

func (r *Reconciler) workloadsUnderWay() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()

	return float64(r.budgets.UnderWay())
}

// breakerOpen returns 1 while the circuit breaker of the cluster, or that of a namespace, is open.
func (r *Reconciler) breakerOpen(ofCluster bool) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()

	open := r.budgets.OpenBreakers(r.Settings.Policy, r.Clock.Now())
	if slices.ContainsFunc(open, func(b adoption.Breaker) bool { return (b.Namespace == "") == ofCluster }) {
		return 1
	}

	return 0
}
