// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/foreignvpa"
	"crane.io/crane/internal/autoscaling/hpametrics"
	"crane.io/crane/internal/kube/enqueue"
	"crane.io/crane/internal/kube/fairqueue"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
)

const (
	// maxConcurrentNamespaces allows one namespace to wait for a slow source of history without blocking the others.
	maxConcurrentNamespaces = 2
	// historyTimeout bounds reading the history of one namespace.
	historyTimeout = 5 * time.Minute
	pageSize       = 500
)

// Config is the configuration of the controller.
type Config struct {
	History profile.Source
	// Kills may be nil.
	Kills KillReader
	// Mapper maps optional kinds; see optionalcrd.NewMapper.
	Mapper meta.RESTMapper
	// Interval is the time between two reconciles of a namespace, HistoryMaxAge the time for which history is cached.
	Interval, HistoryMaxAge time.Duration
	// Registry registers the metrics.
	Registry prometheus.Registerer
	Clock    clock.PassiveClock
}

// AddToManager adds the controller. The manager must not have started.
func AddToManager(mgr manager.Manager, cfg Config) error {
	api, err := hpametrics.NewClient(mgr)
	if err != nil {
		return err
	}

	r := &Reconciler{
		Client:        mgr.GetClient(),
		Lister:        &workload.Lister{Sources: workload.CachedSources(mgr.GetClient(), mgr.GetAPIReader(), pageSize), Scales: mgr.GetClient(), Scheme: mgr.GetScheme()},
		Mapper:        cfg.Mapper,
		History:       cfg.History,
		Kills:         cfg.Kills,
		VPAs:          foreignvpa.NewFinder(mgr.GetAPIReader(), cfg.Mapper),
		External:      ExternalMetricsClient{API: api},
		Events:        mgr.GetEventRecorder("craned"),
		Metrics:       NewMetrics(),
		Clock:         cfg.Clock,
		Interval:      cfg.Interval,
		HistoryMaxAge: cfg.HistoryMaxAge,
	}

	if err := cfg.Registry.Register(r.Metrics); err != nil {
		return fmt.Errorf("registering the metrics of effective VPAs: %w", err)
	}

	reader := mgr.GetClient()
	shares := fairqueue.New(cfg.Clock, func(r reconcile.Request) string { return r.Name })
	b := builder.ControllerManagedBy(mgr).
		Named("effectivevpa").
		Watches(&autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(enqueueNamespace), builder.WithPredicates(changedByOthers())).
		Watches(&analysisv1alpha1.Recommendation{}, handler.EnqueueRequestsFromMapFunc(enqueueForRecommendation), builder.WithPredicates(exceptCreation())).
		WithOptions(shares.Options(maxConcurrentNamespaces, 1))

	for _, kind := range workload.WatchedKinds() {
		b = b.Watches(kind.Object, handler.EnqueueRequestsFromMapFunc(enqueueForTarget(reader, kind.GVK)), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}

	if err := b.Complete(shares.Reconciler(enqueue.OnConflict(r))); err != nil {
		return fmt.Errorf("building the controller of effective VPAs: %w", err)
	}

	return nil
}

func namespaceRequest(name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

func enqueueNamespace(_ context.Context, o client.Object) []reconcile.Request {
	return namespaceRequest(o.GetNamespace())
}

// enqueueForRecommendation maps a Recommendation that an autoscaler owns to its namespace.
func enqueueForRecommendation(_ context.Context, o client.Object) []reconcile.Request {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == autoscalerKind {
			return namespaceRequest(o.GetNamespace())
		}
	}

	return nil
}

// enqueueForTarget maps a workload to its namespace where it is the target of an autoscaler.
func enqueueForTarget(reader client.Reader, kind schema.GroupVersionKind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var list autoscalingv1alpha1.EffectiveVerticalPodAutoscalerList
		if err := reader.List(ctx, &list, client.InNamespace(o.GetNamespace())); err != nil {
			return nil // The cache is stopping.
		}

		for i := range list.Items {
			if key := autoscalerTargetKey(&list.Items[i]); key.Group == kind.Group && key.Kind == kind.Kind && key.Name == o.GetName() {
				return namespaceRequest(o.GetNamespace())
			}
		}

		return nil
	}
}

// changedByOthers passes changes of the spec, of deletion, and of the estimates of estimators outside of Crane.
func changedByOthers() predicate.Predicate {
	foreign := func(o client.Object) (out []time.Time) {
		if e, ok := o.(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler); ok {
			for _, s := range e.Status.ResourceEstimators {
				if s.LastUpdateTime != nil && !slices.Contains(ownEstimators(), s.Type) {
					out = append(out, s.LastUpdateTime.Time)
				}
			}
		}

		return out
	}

	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !slices.EqualFunc(foreign(e.ObjectOld), foreign(e.ObjectNew), time.Time.Equal) ||
			e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}

// exceptCreation passes all events but creations, which this controller causes.
func exceptCreation() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}
}
