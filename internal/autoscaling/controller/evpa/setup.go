// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/optionalcrd"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/vertical"
)

const (
	// maxConcurrentNamespaces is how many are looked at together: one that waits for a slow source must not hold up all others.
	maxConcurrentNamespaces = 2
	// historyTimeout bounds the reading of one namespace.
	historyTimeout = 5 * time.Minute
	pageSize       = 500
)

// Config is what the controller needs from outside.
type Config struct {
	History profile.Source
	// Kills may be nil.
	Kills KillReader
	// Interval is the time between two looks at a namespace, Fresh how long what was read of history counts.
	Interval, HistoryMaxAge time.Duration
	// Registry takes the metrics.
	Registry prometheus.Registerer
	Clock    clock.PassiveClock
}

// AddToManager adds the controller to a manager that has not started.
func AddToManager(mgr manager.Manager, cfg Config) error {
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("building the client of external metrics: %w", err)
	}
	mapper, err := optionalcrd.NewMapper(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	r := &Reconciler{
		Client:  mgr.GetClient(),
		Lister:  &workload.Lister{Sources: workloadSources(mgr.GetClient(), mgr.GetAPIReader()), Scales: mgr.GetClient(), Scheme: mgr.GetScheme()},
		History: cfg.History, Kills: cfg.Kills,
		VPAs:     NewVerticalPodAutoscalers(mgr.GetAPIReader(), mapper),
		External: ExternalMetricsClient{REST: disco.RESTClient()},
		Events:   mgr.GetEventRecorder("craned"), Metrics: NewMetrics(), Clock: cfg.Clock, Interval: cfg.Interval, HistoryMaxAge: cfg.HistoryMaxAge,
	}
	if err := cfg.Registry.Register(r.Metrics); err != nil {
		return fmt.Errorf("registering the metrics of effective VPAs: %w", err)
	}
	reader := mgr.GetClient()
	b := builder.ControllerManagedBy(mgr).
		Named("effectivevpa").
		Watches(&autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(enqueueNamespace), builder.WithPredicates(changedByOthers())).
		Watches(&analysisv1alpha1.Recommendation{}, handler.EnqueueRequestsFromMapFunc(enqueueForRecommendation), builder.WithPredicates(exceptCreation())).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentNamespaces})
	for _, kind := range workload.WatchedKinds() {
		b = b.Watches(kind.Object, handler.EnqueueRequestsFromMapFunc(enqueueForTarget(reader, kind.GVK)), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("building the controller of effective VPAs: %w", err)
	}
	return nil
}

// workloadSources reads from the cache what craned keeps anyway, nodes and autoscalers, and all else from the API server.
func workloadSources(cached, live client.Reader) func(schema.GroupVersionKind) workload.Source {
	return func(kind schema.GroupVersionKind) workload.Source {
		if kind.Kind == "Node" || kind.Kind == "HorizontalPodAutoscaler" {
			return workload.Source{Reader: cached}
		}
		for _, w := range workload.WatchedKinds() {
			if w.GVK == kind {
				return workload.Source{Reader: cached}
			}
		}
		return workload.Source{Reader: live, PageSize: pageSize}
	}
}

func namespaceRequest(name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

func enqueueNamespace(_ context.Context, o client.Object) []reconcile.Request {
	return namespaceRequest(o.GetNamespace())
}

// enqueueForRecommendation maps a Recommendation of an autoscaler to its namespace.
func enqueueForRecommendation(_ context.Context, o client.Object) []reconcile.Request {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == autoscalerKind {
			return namespaceRequest(o.GetNamespace())
		}
	}
	return nil
}

// enqueueForTarget maps a workload to its namespace where an autoscaler has it as target.
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

// changedByOthers lets through what somebody else changed: the spec, that it is being deleted, or the answer of somebody else's estimator.
func changedByOthers() predicate.Predicate {
	foreign := func(o client.Object) (out []time.Time) {
		if e, ok := o.(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler); ok {
			for _, s := range e.Status.ResourceEstimators {
				switch s.Type {
				case vertical.TypePercentile, vertical.TypeOOM, vertical.TypeForecast, vertical.TypeExternal:
				default:
					if s.LastUpdateTime != nil {
						out = append(out, s.LastUpdateTime.Time)
					}
				}
			}
		}
		return out
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := foreign(e.ObjectOld), foreign(e.ObjectNew)
		same := len(before) == len(after)
		for i := range before {
			same = same && before[i].Equal(after[i])
		}
		return !same || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}

// exceptCreation lets through what others did to a Recommendation; its creation is ours.
func exceptCreation() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}
}

func resourceOf(name corev1.ResourceName) vertical.Resource { return vertical.Resource(name) }
