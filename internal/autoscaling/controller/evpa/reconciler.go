// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/oom"
)

// gocraneFinalizer is what gocrane put on each autoscaler. Nobody else would ever take it off.
const gocraneFinalizer = "autoscaling.crane.io/finalizer"

// Reconciler looks after the autoscalers of one namespace.
type Reconciler struct {
	// Client reads autoscalers, Recommendations and predictions from the cache and writes to the API server.
	Client client.Client
	Lister *workload.Lister
	// History is what containers used.
	History profile.Source
	// Kills are the recorded kills for lack of memory; nil where nobody records them.
	Kills Ledger
	// Others finds VerticalPodAutoscalers of somebody else.
	Others Others
	// External reads external metrics.
	External ExternalMetrics
	Events   events.EventRecorder
	Metrics  *Metrics
	Clock    clock.PassiveClock
	// Every is the time between two looks, Fresh how long what was read of history counts.
	Every, Fresh time.Duration

	uses uses
}

// Ledger holds the recorded kills.
type Ledger interface {
	Kills(ctx context.Context) ([]oom.Kill, error)
}

// Reconcile implements reconcile.Reconciler; the name of a request is that of a namespace.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var list autoscalingv1alpha1.EffectiveVerticalPodAutoscalerList
	if err := r.Client.List(ctx, &list, client.InNamespace(req.Name)); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the vertical autoscalers of %s: %w", req.Name, err)
	}
	var errs []error
	var alive []*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler
	for i := range list.Items {
		e := &list.Items[i]
		if e.DeletionTimestamp != nil {
			errs = append(errs, r.release(ctx, e))
			continue
		}
		alive = append(alive, e)
	}
	if len(alive) == 0 {
		r.uses.forget(req.Name)
		r.Metrics.observe(req.Name, nil, nil)
		return ctrl.Result{}, errors.Join(errs...)
	}
	scene, err := r.observe(ctx, req.Name, alive)
	if err != nil {
		return ctrl.Result{}, errors.Join(append(errs, err)...)
	}
	again := r.Every
	plans := make([]plan, len(scene.subjects))
	for i, s := range scene.subjects {
		plans[i] = decide(scene, s)
		errs = append(errs, r.act(ctx, s, &plans[i]))
		if wait := plans[i].again; wait > 0 {
			again = min(again, max(wait, time.Second))
		}
	}
	r.Metrics.observe(req.Name, scene.subjects, plans)
	return ctrl.Result{RequeueAfter: again}, errors.Join(errs...)
}

// release takes gocrane's finalizer off an autoscaler that is being deleted. What it owns goes with it, by the garbage collector,
// and adoption gives back what it gave.
func (r *Reconciler) release(ctx context.Context, e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
	if !slices.Contains(e.Finalizers, gocraneFinalizer) {
		return nil
	}
	changed := e.DeepCopy()
	controllerutil.RemoveFinalizer(changed, gocraneFinalizer)
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(e, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing the vertical autoscaler %s/%s: %w", e.Namespace, e.Name, err)
	}
	return nil
}
