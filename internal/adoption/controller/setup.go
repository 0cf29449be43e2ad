// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/component/notification"
	"crane.io/crane/internal/kube/enqueue"
	"crane.io/crane/internal/kube/fairqueue"
	"crane.io/crane/internal/kube/pause"
	"crane.io/crane/internal/kube/workload"
)

// maxConcurrentTargets is the number of targets that are reconciled at the same time.
const maxConcurrentTargets = 8

// Config holds the dependencies of the controller.
type Config struct {
	Settings targetsnapshot.Settings
	// Kills, Throttling, VPAs and Pods are those of Reconciler.
	Kills      targetsnapshot.KillReader
	Throttling targetsnapshot.ThrottlingReader
	VPAs       targetsnapshot.VPAFinder
	Pods       targetsnapshot.PodChecker
	// Pause and SystemNamespace are those of Reconciler.
	Pause           *pause.Switch
	SystemNamespace string
	// Wake sends targets to reconcile beside the watches; nil for none.
	Wake <-chan event.TypedGenericEvent[targetindex.Key]
	// ReactionInterval is the time between two readings of usage by Reaction; 0 for no reaction.
	ReactionInterval time.Duration
	Reaction         Querier
	// Notify is that of Reconciler.
	Notify func(notification.Event)
	// Registry registers the metrics.
	Registry prometheus.Registerer
	Clock    clock.WithTicker
}

// AddToManager adds the controller to a manager that has not started. The index of package targetindex must have been added.
func AddToManager(mgr manager.Manager, cfg Config) error {
	r := NewReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("craned"), cfg.Clock, cfg.Settings)
	r.Kills = cfg.Kills
	r.Throttling = cfg.Throttling
	r.VPAs = cfg.VPAs
	r.Pods = cfg.Pods
	r.SystemNamespace = cfg.SystemNamespace
	r.Pause = cfg.Pause
	r.Notify = cfg.Notify
	if err := cfg.Registry.Register(r.Metrics); err != nil {
		return fmt.Errorf("registering the metrics of adoption: %w", err)
	}

	shares := fairqueue.New(cfg.Clock, func(k targetindex.Key) string { return k.Namespace })
	b := builder.TypedControllerManagedBy[targetindex.Key](mgr).
		Named("adoption").
		WithOptions(shares.Options(maxConcurrentTargets, maxConcurrentTargets*3/4)).
		Watches(&analysisv1alpha1.Recommendation{}, enqueueRecommendationTargets())

	// A bound that appears may forbid a size that is adopted already. The status of a quota changes with every pod, so that its room is asked
	// for instead.
	byNamespace := enqueueNamespace(mgr.GetClient())
	b = b.Watches(&corev1.LimitRange{}, byNamespace).
		Watches(&corev1.ResourceQuota{}, byNamespace, builder.WithPredicates(predicate.GenerationChangedPredicate{}))

	for _, kind := range workload.WatchedKinds() {
		b = b.Watches(kind.Object, enqueueWorkload(kind.GVK), builder.WithPredicates(relevantChanges()))
	}

	// OOM kills and load wake the reconciler outside of the watches.
	wakes := []<-chan event.TypedGenericEvent[targetindex.Key]{cfg.Wake}
	if cfg.Reaction != nil && cfg.ReactionInterval > 0 {
		r.Reactor = NewReactor(mgr.GetClient(), cfg.Reaction, cfg.Clock, cfg.Pause.Paused, cfg.SystemNamespace, cfg.ReactionInterval)
		wakes = append(wakes, r.Reactor.wake)

		if err := errors.Join(mgr.Add(r.Reactor), cfg.Registry.Register(r.Reactor.queries)); err != nil {
			return fmt.Errorf("adding the reaction of adoption: %w", err)
		}
	}

	for _, wake := range wakes {
		if wake == nil {
			continue
		}

		b = b.WatchesRawSource(source.TypedChannel(wake, handler.TypedFuncs[targetindex.Key, targetindex.Key]{
			GenericFunc: func(_ context.Context, e event.TypedGenericEvent[targetindex.Key], q workqueue.TypedRateLimitingInterface[targetindex.Key]) {
				q.Add(e.Object)
			},
		}))
	}

	if err := b.Complete(shares.Reconciler(enqueue.OnConflict(r))); err != nil {
		return fmt.Errorf("building the controller of adoption: %w", err)
	}

	return nil
}

// enqueueRecommendationTargets enqueues the target of a changed Recommendation, and the previous one if the reference changed.
func enqueueRecommendationTargets() handler.TypedEventHandler[client.Object, targetindex.Key] {
	return handler.TypedFuncs[client.Object, targetindex.Key]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[targetindex.Key]) {
			enqueueTarget(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[targetindex.Key]) {
			enqueueTarget(q, e.ObjectOld)
			enqueueTarget(q, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[targetindex.Key]) {
			enqueueTarget(q, e.Object)
		},
	}
}

func enqueueTarget(q workqueue.TypedRateLimitingInterface[targetindex.Key], o client.Object) {
	if rec, ok := o.(*analysisv1alpha1.Recommendation); ok {
		q.Add(targetindex.KeyOf(rec.Spec.TargetRef))
	}
}

// enqueueNamespace enqueues the targets in the namespace of an object that are adopted.
func enqueueNamespace(reader client.Reader) handler.TypedEventHandler[client.Object, targetindex.Key] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []targetindex.Key {
		var list analysisv1alpha1.RecommendationList
		if err := reader.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "listing recommendations", "namespace", o.GetNamespace())
			return nil
		}

		var out []targetindex.Key
		for i := range list.Items {
			if list.Items[i].Spec.AdoptionType == analysisv1alpha1.AdoptionTypeAuto {
				out = append(out, targetindex.KeyOf(list.Items[i].Spec.TargetRef))
			}
		}

		return out
	})
}

// enqueueWorkload enqueues a workload as a target.
func enqueueWorkload(kind schema.GroupVersionKind) handler.TypedEventHandler[client.Object, targetindex.Key] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []targetindex.Key {
		return []targetindex.Key{{Group: kind.Group, Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}}
	})
}

// relevantChanges passes new and deleted targets, changes of Crane's annotations and label, and, for adopted targets, their
// initial list, every change of their spec, and the first sign of a missing pod.
func relevantChanges() predicate.Predicate {
	adopted := func(o client.Object) bool {
		for _, key := range targetsnapshot.StateAnnotations() {
			if _, ok := o.GetAnnotations()[key]; ok {
				return true
			}
		}

		return false
	}

	return predicate.Funcs{
		// A Recommendation may have waited for the new object.
		CreateFunc:  func(e event.CreateEvent) bool { return !e.IsInInitialList || adopted(e.Object) },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		UpdateFunc: func(e event.UpdateEvent) bool {
			if adopted(e.ObjectNew) && e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() {
				return true
			}

			if adopted(e.ObjectNew) && targetsnapshot.LacksPods(e.ObjectNew) && !targetsnapshot.LacksPods(e.ObjectOld) {
				return true
			}

			if targetsnapshot.OptedOut(e.ObjectOld.GetLabels()) != targetsnapshot.OptedOut(e.ObjectNew.GetLabels()) {
				return true
			}

			for _, key := range []string{
				analysisv1alpha1.AnnotationResourceRecommendation,
				analysisv1alpha1.AnnotationReplicasRecommendation,
				analysisv1alpha1.AnnotationHPARecommendation,
				analysisv1alpha1.AnnotationAdoption,
				analysisv1alpha1.AnnotationReplicasAdoption,
				analysisv1alpha1.AnnotationAdoptTemplate,
			} {
				if e.ObjectOld.GetAnnotations()[key] != e.ObjectNew.GetAnnotations()[key] {
					return true
				}
			}

			return false
		},
	}
}
