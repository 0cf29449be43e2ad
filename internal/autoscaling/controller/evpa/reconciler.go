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
	Kills KillReader
	// VPAs finds VerticalPodAutoscalers of somebody else.
	VPAs VPAFinder
	// External reads external metrics.
	External ExternalMetricReader
	Events   events.EventRecorder
	Metrics  *Metrics
	Clock    clock.PassiveClock
	// Interval is the time between two looks, Fresh how long what was read of history counts.
	Interval, HistoryMaxAge time.Duration

	usageCache usageCache
}

// KillReader holds the recorded kills.
type KillReader interface {
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
			errs = append(errs, r.removeFinalizer(ctx, e))
			continue
		}
		alive = append(alive, e)
	}
	if len(alive) == 0 {
		r.usageCache.forget(req.Name)
		r.Metrics.record(req.Name, nil, nil)
		return ctrl.Result{}, errors.Join(errs...)
	}
	scene, err := r.observe(ctx, req.Name, alive)
	if err != nil {
		return ctrl.Result{}, errors.Join(append(errs, err)...)
	}
	again := r.Interval
	plans := make([]plan, len(scene.autoscalers))
	for i, s := range scene.autoscalers {
		plans[i] = decide(scene, s)
		errs = append(errs, r.apply(ctx, s, &plans[i]))
		if wait := plans[i].requeueAfter; wait > 0 {
			again = min(again, max(wait, time.Second))
		}
	}
	r.Metrics.record(req.Name, scene.autoscalers, plans)
	return ctrl.Result{RequeueAfter: again}, errors.Join(errs...)
}

// removeFinalizer takes gocrane's finalizer off an autoscaler that is being deleted. What it owns goes with it, by the garbage collector,
// and adoption gives back what it gave.
func (r *Reconciler) removeFinalizer(ctx context.Context, e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
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
