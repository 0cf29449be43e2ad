// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/oom"
)

// Reconciler reconciles the autoscalers of one namespace at a time.
type Reconciler struct {
	// Client reads autoscalers, Recommendations and predictions from the cache and writes to the API server.
	Client client.Client
	Lister *workload.Lister
	// Mapper finds the served versions of kinds.
	Mapper meta.RESTMapper
	// History is the source of container usage.
	History profile.Source
	// Kills are the recorded OOM kills; nil where they are not recorded.
	Kills KillReader
	// VPAs finds VerticalPodAutoscalers.
	VPAs targetsnapshot.VPAFinder
	// External reads external metrics.
	External ExternalMetricReader
	Events   events.EventRecorder
	Metrics  *Metrics
	Clock    clock.PassiveClock
	// Interval is the time between two reconciles of a namespace, HistoryMaxAge the time for which history is cached.
	Interval, HistoryMaxAge time.Duration

	usageCache usageCache
}

// KillReader returns the recorded OOM kills.
type KillReader interface {
	Kills(ctx context.Context) ([]oom.Kill, error)
}

// Reconcile implements reconcile.Reconciler. The name of a request is that of a namespace.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var list autoscalingv1alpha1.EffectiveVerticalPodAutoscalerList
	if err := r.Client.List(ctx, &list, client.InNamespace(req.Name)); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the vertical autoscalers of %s: %w", req.Name, err)
	}

	var errs []error
	var active []*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler
	for i := range list.Items {
		if e := &list.Items[i]; e.DeletionTimestamp != nil {
			errs = append(errs, r.removeFinalizer(ctx, e))
		} else {
			active = append(active, e)
		}
	}

	// The last autoscaler of a namespace takes its usage and metrics along.
	if len(active) == 0 {
		r.usageCache.forget(req.Name)
		r.Metrics.record(req.Name, nil, nil)
		return ctrl.Result{}, errors.Join(errs...)
	}

	ns, states, err := r.observe(ctx, req.Name, active)
	if err != nil {
		return ctrl.Result{}, errors.Join(append(errs, err)...)
	}

	requeueAfter := r.Interval
	plans := make([]plan, len(states))
	for i, s := range states {
		plans[i] = decide(ns, s)
		errs = append(errs, r.apply(ctx, s, plans[i]))

		if wait := plans[i].requeueAfter; wait > 0 {
			requeueAfter = min(requeueAfter, max(wait, time.Second))
		}
	}

	r.Metrics.record(req.Name, states, plans)
	return ctrl.Result{RequeueAfter: requeueAfter}, errors.Join(errs...)
}

// removeFinalizer removes gocrane's finalizer from an autoscaler that is being deleted. The garbage collector deletes its Recommendation, and
// adoption restores the original requests.
func (r *Reconciler) removeFinalizer(ctx context.Context, e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
	if !slices.Contains(e.Finalizers, autoscalingv1alpha1.Finalizer) {
		return nil
	}

	changed := e.DeepCopy()
	controllerutil.RemoveFinalizer(changed, autoscalingv1alpha1.Finalizer)

	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(e, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of the vertical autoscaler %s/%s: %w", e.Namespace, e.Name, err)
	}

	return nil
}
