// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"sigs.k8s.io/controller-runtime/pkg/source"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/enqueue"
	"crane.io/crane/internal/kube/optionalcrd"
	"crane.io/crane/internal/kube/workload"
)

const (
	// ownerIndex finds HPAs by the UID of the EffectiveHorizontalPodAutoscaler that controls them.
	ownerIndex = "crane.io/effective-hpa"
	// targetIndex finds HPAs and EffectiveHorizontalPodAutoscalers by what they scale.
	targetIndex = "crane.io/scale-target"
	// maxConcurrentReconciles is how many autoscalers are looked at once.
	maxConcurrentReconciles = 8
	// probeInterval is the time between two looks at what external metrics are served; probeGracePeriod is longer than an adapter takes
	// to be replaced.
	probeInterval, probeGracePeriod = 30 * time.Second, 3 * time.Minute

	externalMetricsVersion = "external.metrics.k8s.io/v1beta1"
)

// Config is what the controller needs from outside.
type Config struct {
	Settings Settings
	Queries  *QueryBuilder
	// ProbeInterval and ProbeGracePeriod replace the usual times where they are not 0.
	ProbeInterval, ProbeGracePeriod time.Duration
	// Changed brings word that every autoscaler should be looked at, as when rules have changed. May be nil.
	Changed chan event.TypedGenericEvent[client.Object]
	Clock   clock.WithTicker
}

// AddToManager adds the controller and its indexes to a manager that has not started.
func AddToManager(ctx context.Context, mgr manager.Manager, cfg Config) error {
	if err := AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("building the discovery client: %w", err)
	}
	if cfg.Changed == nil {
		cfg.Changed = make(chan event.TypedGenericEvent[client.Object], 1)
	}
	probe := &MetricProbe{
		ListMetrics: func() (*metav1.APIResourceList, error) {
			return disco.ServerResourcesForGroupVersion(externalMetricsVersion)
		},
		Interval: or(cfg.ProbeInterval, probeInterval), GracePeriod: or(cfg.ProbeGracePeriod, probeGracePeriod), Clock: cfg.Clock, Changed: cfg.Changed,
	}
	if err := mgr.Add(probe); err != nil {
		return fmt.Errorf("adding the look at external metrics: %w", err)
	}
	previews, err := NewPreviewCalculator(mgr)
	if err != nil {
		return err
	}
	mapper, err := optionalcrd.NewMapper(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	r := &Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Targets: &workload.ScaleClient{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Client: mgr.GetClient()},
		KEDA:    NewScaledObjects(mgr.GetAPIReader(), mapper),
		Queries: cfg.Queries, Availability: probe.Availability, Preview: previews,
		Events: mgr.GetEventRecorder("craned"), Settings: cfg.Settings, Clock: cfg.Clock,
	}
	reader := mgr.GetClient()
	err = builder.ControllerManagedBy(mgr).
		Named("effectivehpa").
		For(&autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}, builder.WithPredicates(changedByOthers())).
		// When one goes, or changes its target, others of the target may take over.
		Watches(&autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(enqueueSiblings(reader)),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&predictionv1alpha1.TimeSeriesPrediction{}).
		Owns(&autoscalingv1alpha1.Substitute{}).
		Watches(&autoscalingv2.HorizontalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(enqueueForHPA(reader))).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(enqueueForTarget(reader, "Deployment")), builder.WithPredicates(specChanged())).
		Watches(&appsv1.StatefulSet{}, handler.EnqueueRequestsFromMapFunc(enqueueForTarget(reader, "StatefulSet")), builder.WithPredicates(specChanged())).
		WatchesRawSource(source.Channel(cfg.Changed, handler.EnqueueRequestsFromMapFunc(enqueue.All[autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList](reader)))).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller of effective HPAs: %w", err)
	}
	return nil
}

func or(d, usual time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return usual
}

// AddIndexes adds the indexes that the reconciler looks things up by.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := indexer.IndexField(ctx, hpa, ownerIndex, func(o client.Object) []string {
		if ref := metav1.GetControllerOfNoCopy(o); ref != nil && ref.Kind == "EffectiveHorizontalPodAutoscaler" {
			return []string{string(ref.UID)}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("indexing HPAs by owner: %w", err)
	}
	for _, kind := range []client.Object{hpa, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}} {
		if err := indexer.IndexField(ctx, kind, targetIndex, targetIndexValues); err != nil {
			return fmt.Errorf("indexing autoscalers by target: %w", err)
		}
	}
	return nil
}

func targetIndexValues(o client.Object) []string {
	switch o := o.(type) {
	case *autoscalingv2.HorizontalPodAutoscaler:
		return []string{targetKey(o.Spec.ScaleTargetRef)}
	case *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler:
		return []string{targetKey(o.Spec.ScaleTargetRef)}
	}
	return nil
}

// changedByOthers lets through what somebody else changed: the spec, a label, an annotation other than our own.
func changedByOthers() predicate.Predicate {
	theirs := func(o client.Object) map[string]string {
		out := maps.Clone(o.GetAnnotations())
		delete(out, autoscalingv1alpha1.AnnotationCurrentMetrics)
		return out
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || !maps.Equal(theirs(e.ObjectOld), theirs(e.ObjectNew)) ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}

// specChanged lets through what changes the scale of a target or what its pods request: both are in its spec.
func specChanged() predicate.Predicate {
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
		},
	}
}

// requestsForTarget lists the autoscalers of a target.
func requestsForTarget(ctx context.Context, reader client.Reader, namespace, key string) []reconcile.Request {
	return enqueue.List(ctx, reader, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList{},
		client.InNamespace(namespace), client.MatchingFields{targetIndex: key})
}

func enqueueForTarget(reader client.Reader, kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		ref := autoscalingv2.CrossVersionObjectReference{Kind: kind, Name: o.GetName()}
		return requestsForTarget(ctx, reader, o.GetNamespace(), targetKey(ref))
	}
}

func enqueueSiblings(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var out []reconcile.Request
		for _, key := range targetIndexValues(o) {
			for _, r := range requestsForTarget(ctx, reader, o.GetNamespace(), key) {
				if r.NamespacedName != client.ObjectKeyFromObject(o) {
					out = append(out, r)
				}
			}
		}
		return out
	}
}

// enqueueForHPA maps an HPA to the autoscaler that controls it, and to those of its target.
func enqueueForHPA(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		if ref := metav1.GetControllerOfNoCopy(o); ref != nil && ref.Kind == "EffectiveHorizontalPodAutoscaler" {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: ref.Name}}}
		}
		var out []reconcile.Request
		for _, key := range targetIndexValues(o) {
			out = append(out, requestsForTarget(ctx, reader, o.GetNamespace(), key)...)
		}
		return out
	}
}
