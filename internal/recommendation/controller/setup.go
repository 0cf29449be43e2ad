// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlsource "sigs.k8s.io/controller-runtime/pkg/source"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/internal/kube/enqueue"
	"crane.io/crane/internal/kube/optionalcrd"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
)

const (
	// maxConcurrentPasses is how many rules run at once: one that waits for a slow source must not hold up all others, and
	// each holds the profiles of its targets in memory.
	maxConcurrentPasses = 2
	// maxConcurrentRecommendations is how many Recommendations are looked after at once.
	maxConcurrentRecommendations = 8
	// maxConcurrentWrites is how many Recommendations one round writes at once.
	maxConcurrentWrites = 10
	// pageSize is how many objects of a kind that is not cached are read at once.
	pageSize    = 500
	listTimeout = time.Minute
	// historyTimeout bounds the reading of one round. A source that needs longer is asked for too much at once.
	historyTimeout = 30 * time.Minute
	// firstRetry and lastRetry bound the back-off of a round that failed.
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// Config is what the controllers need from outside.
type Config struct {
	History profile.Source
	// Settings are those of the configuration file, which is followed.
	Settings *configfile.File[Settings]
	// Pricer may be nil: then recommendations say nothing of money.
	Pricer Pricer
	// Namespace is Crane's own.
	Namespace string
	// Outdated is the age from which metrics call a recommendation OutDate.
	Outdated time.Duration
	// Registry takes the metrics.
	Registry prometheus.Registerer
	Clock    clock.PassiveClock
}

// AddToManager adds both controllers and their indexes to a manager that has not started.
func AddToManager(ctx context.Context, mgr manager.Manager, cfg Config) error {
	if err := AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	metrics := NewMetrics(cfg.Clock.Now, cfg.Outdated)
	if err := cfg.Registry.Register(metrics); err != nil {
		return fmt.Errorf("registering the metrics of recommendations: %w", err)
	}
	if err := addRules(mgr, cfg, metrics); err != nil {
		return err
	}
	if err := addAnalytics(mgr, cfg); err != nil {
		return err
	}
	one := &Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("craned"), Metrics: metrics, Clock: cfg.Clock,
	}
	b := builder.ControllerManagedBy(mgr).
		Named("recommendation").
		For(&analysisv1alpha1.Recommendation{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentRecommendations})
	for _, kind := range workload.WatchedKinds() {
		b = b.Watches(kind.Object, handler.EnqueueRequestsFromMapFunc(mapTargetToRecommendations(mgr.GetClient(), kind.GVK)), builder.WithPredicates(deletionsOnly()))
	}
	if err := b.Complete(one); err != nil {
		return fmt.Errorf("building the controller of recommendations: %w", err)
	}
	return nil
}

// addRules adds the controller of rules, and what follows the configuration file for it.
func addRules(mgr manager.Manager, cfg Config, metrics *Metrics) error {
	rules, err := NewRuleReconciler(mgr, cfg, metrics)
	if err != nil {
		return err
	}
	reloaded := make(chan event.GenericEvent, 1)
	err = builder.ControllerManagedBy(mgr).
		Named("recommendationrule").
		// The status is ours: only a change of the spec asks for a round.
		For(&analysisv1alpha1.RecommendationRule{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&analysisv1alpha1.Recommendation{}, handler.EnqueueRequestsFromMapFunc(mapToRule), builder.WithPredicates(newEvaluationRequests())).
		WatchesRawSource(ctrlsource.Channel(reloaded, handler.EnqueueRequestsFromMapFunc(enqueue.All[analysisv1alpha1.RecommendationRuleList](mgr.GetClient())))).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentPasses}).
		Complete(rules)
	if err != nil {
		return fmt.Errorf("building the controller of rules: %w", err)
	}
	follow := settingsWatcher{
		settings: cfg.Settings, events: mgr.GetEventRecorder("craned"), namespace: cfg.Namespace,
		loaded: func() {
			select {
			case reloaded <- event.GenericEvent{Object: &analysisv1alpha1.RecommendationRule{}}:
			default: // One is on its way already.
			}
		},
	}
	if err := cfg.Registry.Register(follow); err != nil {
		return fmt.Errorf("registering the metrics of the recommendation configuration: %w", err)
	}
	if err := mgr.Add(follow); err != nil {
		return fmt.Errorf("following the recommendation configuration: %w", err)
	}
	return nil
}

// mapToRule maps a Recommendation to the rule that made it.
func mapToRule(_ context.Context, o client.Object) []reconcile.Request {
	rec, ok := o.(*analysisv1alpha1.Recommendation)
	if !ok {
		return nil
	}
	name := ruleNameOf(rec)
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

// newEvaluationRequests lets through that somebody has lowered the run number of a Recommendation.
func newEvaluationRequests() predicate.Predicate {
	asked := func(o client.Object) bool {
		rec, ok := o.(*analysisv1alpha1.Recommendation)
		return ok && evaluationRequested(rec)
	}
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false }, // The rule itself is looked at after a start.
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return asked(e.ObjectNew) && !asked(e.ObjectOld) },
	}
}

// NewRuleReconciler builds the reconciler of rules on a manager, whether it runs or is called directly.
func NewRuleReconciler(mgr manager.Manager, cfg Config, metrics *Metrics) (*RuleReconciler, error) {
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("building the discovery client: %w", err)
	}
	mapper, err := optionalcrd.NewMapper(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	return &RuleReconciler{
		Client: mgr.GetClient(),
		Live:   mgr.GetAPIReader(),
		Lister: &workload.Lister{
			Sources: sources(mgr.GetClient(), mgr.GetAPIReader()),
			Scales:  mgr.GetClient(),
			Scheme:  mgr.GetScheme(),
		},
		Kinds:          DiscoveryKinds{Mapper: mapper, Preferred: disco.ServerPreferredResources},
		History:        cfg.History,
		Pricer:         cfg.Pricer,
		Settings:       cfg.Settings.Content,
		Namespace:      cfg.Namespace,
		ListTimeout:    listTimeout,
		HistoryTimeout: historyTimeout,
		Workers:        maxConcurrentWrites,
		PassSize:       passSize,
		Events:         mgr.GetEventRecorder("craned"),
		Metrics:        metrics,
		Clock:          cfg.Clock,
		Backoff:        workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
	}, nil
}

// sources reads watched kinds from the cache and all others from the API server, page by page.
func sources(cached, live client.Reader) func(schema.GroupVersionKind) workload.Source {
	return func(kind schema.GroupVersionKind) workload.Source {
		for _, w := range workload.WatchedKinds() {
			if w.GVK == kind {
				return workload.Source{Reader: cached}
			}
		}
		return workload.Source{Reader: live, PageSize: pageSize}
	}
}

// AddIndexes adds the indexes that the reconcilers look things up by, but for that of package targets, which others use too.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &analysisv1alpha1.Recommendation{}, indexRuleUID, ruleUIDsOf)
	if err != nil {
		return fmt.Errorf("indexing recommendations by rule: %w", err)
	}
	return nil
}

// ruleUIDsOf are the UIDs by which the Recommendations of a rule are found: the rule's own, and, for those that gocrane made
// for an Analytics, that of the Analytics.
func ruleUIDsOf(o client.Object) []string {
	var out []string
	for _, key := range []string{analysisv1alpha1.LabelRuleUID, analysisv1alpha1.LabelAnalyticsUID} {
		if uid := o.GetLabels()[key]; uid != "" {
			out = append(out, uid)
		}
	}
	return out
}

// mapTargetToRecommendations maps a workload to its Recommendations.
func mapTargetToRecommendations(reader client.Reader, kind schema.GroupVersionKind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		all, err := targetindex.ListRecommendations(ctx, reader, targetindex.Key{
			Group: kind.Group, Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName(),
		})
		if err != nil {
			return nil // The cache is stopping.
		}
		out := make([]reconcile.Request, len(all))
		for i := range all {
			out[i].NamespacedName = client.ObjectKeyFromObject(&all[i])
		}
		return out
	}
}

// deletionsOnly lets through that a target is gone.
func deletionsOnly() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
	}
}
