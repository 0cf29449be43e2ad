// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/hpametrics"
	"crane.io/crane/internal/kube/enqueue"
	"crane.io/crane/internal/kube/fairqueue"
	"crane.io/crane/internal/kube/workload"
)

const (
	// ownerIndex indexes HPAs by the UID of the EffectiveHorizontalPodAutoscaler that controls them.
	ownerIndex = "crane.io/effective-hpa"
	// targetIndex indexes HPAs and EffectiveHorizontalPodAutoscalers by their target.
	targetIndex             = "crane.io/scale-target"
	maxConcurrentReconciles = 8

	externalMetricsVersion = "external.metrics.k8s.io/v1beta1"
)

// Config is the configuration of the controller.
type Config struct {
	Settings Settings
	Queries  *QueryBuilder
	// Mapper maps optional kinds; see optionalcrd.NewMapper.
	Mapper meta.RESTMapper
	// ProbeInterval is the time between two requests for the served external metrics. A missing forecast metric is removed from HPAs
	// after ProbeGracePeriod, which is longer than the replacement of an adapter.
	ProbeInterval, ProbeGracePeriod time.Duration
	// Changed triggers a reconcile of all autoscalers, for instance after a change of rules.
	Changed chan event.TypedGenericEvent[client.Object]
	// SystemNamespace is Crane's own.
	SystemNamespace string
	// Registry registers the metrics.
	Registry prometheus.Registerer
	Clock    clock.WithTicker
}

// AddToManager adds the controller and its indexes. The manager must not have started.
func AddToManager(ctx context.Context, mgr manager.Manager, cfg Config) error {
	if err := AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}

	if err := addMetrics(mgr, cfg); err != nil {
		return err
	}

	disco, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("building the discovery client: %w", err)
	}

	probe := &MetricProbe{
		ListMetrics: func() (*metav1.APIResourceList, error) {
			return disco.ServerResourcesForGroupVersion(externalMetricsVersion)
		},
		Interval:    cfg.ProbeInterval,
		GracePeriod: cfg.ProbeGracePeriod,
		Clock:       cfg.Clock,
		Changed:     cfg.Changed,
	}

	if err := mgr.Add(probe); err != nil {
		return fmt.Errorf("adding the probe of external metrics: %w", err)
	}

	metrics, err := hpametrics.NewClient(mgr)
	if err != nil {
		return err
	}

	r := &Reconciler{
		Client:       mgr.GetClient(),
		Live:         mgr.GetAPIReader(),
		Targets:      &workload.ScaleClient{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Client: mgr.GetClient()},
		KEDA:         NewScaledObjects(mgr.GetAPIReader(), cfg.Mapper),
		Queries:      cfg.Queries,
		Requests:     &PodRequestReader{Pods: mgr.GetAPIReader()},
		Availability: probe.Availability,
		Preview:      &PreviewCalculator{Metrics: metrics},
		Events:       mgr.GetEventRecorder("craned"),
		Settings:     cfg.Settings,
		Clock:        cfg.Clock,
	}

	reader := mgr.GetClient()
	// A label may be the opt-out.
	changed := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{})
	shares := fairqueue.ByNamespace(cfg.Clock)

	err = builder.ControllerManagedBy(mgr).
		Named("effectivehpa").
		For(&autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}, builder.WithPredicates(changedByOthers())).
		// A deleted or retargeted autoscaler may let a sibling scale the target.
		Watches(&autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(enqueueSiblings(reader)),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&predictionv1alpha1.TimeSeriesPrediction{}).
		Owns(&autoscalingv1alpha1.Substitute{}).
		Watches(&autoscalingv2.HorizontalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(enqueueForHPA(reader))).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(enqueueForTarget(reader, "Deployment")), builder.WithPredicates(changed)).
		Watches(&appsv1.StatefulSet{}, handler.EnqueueRequestsFromMapFunc(enqueueForTarget(reader, "StatefulSet")), builder.WithPredicates(changed)).
		WatchesRawSource(source.Channel(cfg.Changed, handler.EnqueueRequestsFromMapFunc(enqueue.All[autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList](reader)))).
		WithOptions(shares.Options(maxConcurrentReconciles, maxConcurrentReconciles/4)).
		Complete(shares.Reconciler(enqueue.OnConflict(r)))
	if err != nil {
		return fmt.Errorf("building the controller of effective HPAs: %w", err)
	}

	return nil
}

// addMetrics registers the metrics and adds the watch that counts scalings.
func addMetrics(mgr manager.Manager, cfg Config) error {
	m := &Metrics{
		Reader:          mgr.GetClient(),
		Zones:           cfg.Settings.Zones,
		Elected:         mgr.Elected(),
		Rules:           cfg.Queries.Rules,
		SystemNamespace: cfg.SystemNamespace,
		Clock:           cfg.Clock,
	}

	if err := cfg.Registry.Register(m); err != nil {
		return fmt.Errorf("registering the metrics of effective HPAs: %w", err)
	}

	watch := manager.RunnableFunc(func(ctx context.Context) error { return m.watchHPAs(ctx, mgr.GetCache()) })
	if err := mgr.Add(watch); err != nil {
		return fmt.Errorf("adding the watch of HPAs: %w", err)
	}

	return nil
}

// AddIndexes adds the field indexes of the reconciler.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := indexer.IndexField(ctx, hpa, ownerIndex, func(o client.Object) []string {
		if isControlledByEHPA(o) {
			return []string{string(metav1.GetControllerOfNoCopy(o).UID)}
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

// isControlledByEHPA reports whether an EffectiveHorizontalPodAutoscaler controls an object.
func isControlledByEHPA(o metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(o)
	return ref != nil && ref.Kind == ehpaKind
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

// changedByOthers passes changes of the spec, of labels, of deletion and of annotations other than the one that the controller writes.
func changedByOthers() predicate.Predicate {
	annotations := func(o client.Object) map[string]string {
		out := maps.Clone(o.GetAnnotations())
		delete(out, autoscalingv1alpha1.AnnotationCurrentMetrics)
		return out
	}

	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || !maps.Equal(annotations(e.ObjectOld), annotations(e.ObjectNew)) ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}

// requestsForTarget returns a request for each autoscaler of a target.
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

// enqueueForHPA maps an HPA to the autoscaler that controls it, else to those of its target.
func enqueueForHPA(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		if ref := metav1.GetControllerOfNoCopy(o); ref != nil && ref.Kind == ehpaKind {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: ref.Name}}}
		}

		var out []reconcile.Request
		for _, key := range targetIndexValues(o) {
			out = append(out, requestsForTarget(ctx, reader, o.GetNamespace(), key)...)
		}

		return out
	}
}
