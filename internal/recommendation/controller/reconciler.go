// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
)

// Reconciler exports the value of a Recommendation as metrics, and deletes a Recommendation of a rule whose target was
// deleted. Package adoption applies the value.
type Reconciler struct {
	// Client reads Recommendations from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server. It confirms deletions and reads kinds that are not cached.
	Live    client.Reader
	Events  events.EventRecorder
	Metrics *Metrics
	Clock   clock.PassiveClock
	// Namespace is Crane's own namespace.
	Namespace string
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	rec := &analysisv1alpha1.Recommendation{}
	if err := r.Client.Get(ctx, req.NamespacedName, rec); err != nil {
		if apierrors.IsNotFound(err) {
			r.Metrics.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}

		return ctrl.Result{}, fmt.Errorf("reading recommendation %s: %w", req, err)
	}

	// Package adoption reports a target that the namespace of the Recommendation does not permit.
	if rec.DeletionTimestamp != nil || !targetindex.IsPermitted(rec, r.Namespace) {
		r.Metrics.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}

	// An unreadable value has no metric; the condition Adopted explains the error.
	values, _ := parseValue(rec.Status.RecommendedValue)
	r.Metrics.observe(rec, values)

	if rec.Labels[analysisv1alpha1.LabelRuleUID] == "" { // One that a user created stays without its target.
		return ctrl.Result{}, nil
	}

	_, err := targetindex.Find(ctx, r.Client, r.Live, rec.Spec.TargetRef)
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, r.targetGone(ctx, rec)
	case err != nil && !meta.IsNoMatchError(err) && !errors.Is(err, targetindex.ErrOtherNamespace): // An uninstalled kind may come back; the next run of the rule reports it.
		return ctrl.Result{}, err
	}

	return ctrl.Result{}, nil
}

// targetGone deletes a Recommendation of a rule.
func (r *Reconciler) targetGone(ctx context.Context, rec *analysisv1alpha1.Recommendation) error {
	err := r.Client.Delete(ctx, rec, client.Preconditions{UID: &rec.UID, ResourceVersion: &rec.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting recommendation %s/%s, whose target is gone: %w", rec.Namespace, rec.Name, err)
	}

	r.Events.Eventf(rec, nil, corev1.EventTypeNormal, reasonTargetGone, "Delete",
		"%s %s is gone; the recommendation for it was deleted", rec.Spec.TargetRef.Kind, rec.Spec.TargetRef.Name)
	r.Metrics.forget(client.ObjectKeyFromObject(rec))

	return nil
}
