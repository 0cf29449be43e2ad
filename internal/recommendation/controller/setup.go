// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	"crane.io/crane/internal/kube/fairqueue"
	"crane.io/crane/internal/kube/optionalcrd"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/cost"
)

const (
	// maxConcurrentBatches bounds the number of rules that run at the same time. A rule that waits for a slow source must not
	// delay all others, and each holds the profiles of its targets in memory.
	maxConcurrentBatches = 2
	// maxConcurrentRecommendations bounds the number of Recommendations that are reconciled at the same time.
	maxConcurrentRecommendations = 8
	// maxConcurrentWrites bounds the number of Recommendations that one batch writes at the same time.
	maxConcurrentWrites = 10
	// pageSize is the number of objects per list request of kinds that are not cached.
	pageSize    = 500
	listTimeout = time.Minute
	// historyTimeout bounds the reading of history in one batch.
	historyTimeout = 30 * time.Minute
	// firstRetry and lastRetry bound the backoff of a failed batch.
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// Config holds the dependencies of the controllers.
type Config struct {
	History profile.Source
	// Settings is the configuration file, which is reloaded when it changes.
	Settings *configfile.File[Settings]
	// Reaction is set if the pods of calibrated workloads with adoptionType Auto are raised within the day, as fast as the replay of the
	// default reaction assumes.
	Reaction bool
	// Pricer may be nil: then Recommendations have no savings.
	Pricer Pricer
	// Costs returns the last accounting of the cluster; nil for none.
	Costs func() (*cost.Tariff, cost.Allocation, bool)
	// Namespace is Crane's own.
	Namespace string
	// Outdated is the age from which metrics report a Recommendation as OutDate.
	Outdated time.Duration
	// Registry receives the metrics.
	Registry prometheus.Registerer
	Clock    clock.PassiveClock
}

// AddToManager adds the controllers of rules, Recommendations and Analytics and their indexes to a manager that has not
// started.
func AddToManager(ctx context.Context, mgr manager.Manager, cfg Config) error {
	if err := AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}

	metrics := NewMetrics(cfg.Clock.Now, cfg.Outdated)
	metrics.Costs = cfg.Costs
	if err := cfg.Registry.Register(metrics); err != nil {
		return fmt.Errorf("registering the metrics of recommendations: %w", err)
	}

	if err := addRules(mgr, cfg, metrics); err != nil {
		return err
	}

	if err := addAnalytics(mgr, cfg); err != nil {
		return err
	}

	reconciler := &Reconciler{
		Client:    mgr.GetClient(),
		Live:      mgr.GetAPIReader(),
		Events:    mgr.GetEventRecorder("craned"),
		Metrics:   metrics,
		Clock:     cfg.Clock,
		Namespace: cfg.Namespace,
	}

	// Evaluations share the workers by namespace, so that one tenant cannot occupy all of them.
	shares := fairqueue.ByNamespace(cfg.Clock)
	b := builder.ControllerManagedBy(mgr).
		Named("recommendation").
		For(&analysisv1alpha1.Recommendation{}).
		WithOptions(shares.Options(maxConcurrentRecommendations, maxConcurrentRecommendations*3/4))

	for _, kind := range workload.WatchedKinds() {
		b = b.Watches(kind.Object, handler.EnqueueRequestsFromMapFunc(mapTargetToRecommendations(mgr.GetClient(), kind.GVK)), builder.WithPredicates(deletionsOnly()))
	}

	if err := b.Complete(shares.Reconciler(enqueue.OnConflict(reconciler))); err != nil {
		return fmt.Errorf("building the controller of recommendations: %w", err)
	}

	return nil
}

// addRules adds the controller of rules and the watcher of the configuration file.
func addRules(mgr manager.Manager, cfg Config, metrics *Metrics) error {
	rules, err := NewRuleReconciler(mgr, cfg, metrics)
	if err != nil {
		return err
	}

	shares := fairqueue.New(cfg.Clock, namespaceOfRule(mgr.GetClient()))
	reloaded := make(chan event.GenericEvent, 1)
	err = builder.ControllerManagedBy(mgr).
		Named("recommendationrule").
		// Only changes of the spec lead to a batch; the status is written by this controller.
		For(&analysisv1alpha1.RecommendationRule{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&analysisv1alpha1.Recommendation{}, handler.EnqueueRequestsFromMapFunc(mapToRule), builder.WithPredicates(newEvaluationRequests())).
		WatchesRawSource(ctrlsource.Channel(reloaded, handler.EnqueueRequestsFromMapFunc(enqueue.All[analysisv1alpha1.RecommendationRuleList](mgr.GetClient())))).
		WithOptions(shares.Options(maxConcurrentBatches, maxConcurrentBatches/2)).
		Complete(shares.Reconciler(enqueue.OnConflict(rules)))
	if err != nil {
		return fmt.Errorf("building the controller of rules: %w", err)
	}

	follow := settingsWatcher{
		settings: cfg.Settings, events: mgr.GetEventRecorder("craned"), namespace: cfg.Namespace,
		loaded: func() {
			select {
			case reloaded <- event.GenericEvent{Object: &analysisv1alpha1.RecommendationRule{}}:
			default: // A reload is already pending.
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

// namespaceOfRule returns a function that returns the namespace of the Analytics that a rule was made of. Any other rule is charged to itself,
// under a name that no namespace has; so is one that cannot be read, since Reconcile reads it again and returns the error.
func namespaceOfRule(reader client.Reader) func(reconcile.Request) string {
	return func(r reconcile.Request) string {
		rule := &analysisv1alpha1.RecommendationRule{}
		if reader.Get(context.Background(), r.NamespacedName, rule) != nil || rule.Annotations[analysisv1alpha1.AnnotationAnalyticsConversion] == "" {
			return "rule/" + r.Name
		}

		return strings.Join(rule.Spec.NamespaceSelector.MatchNames, ",")
	}
}

// mapToRule returns a request for the rule that created a Recommendation.
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

// newEvaluationRequests passes updates in which a user lowers the run number of a Recommendation.
func newEvaluationRequests() predicate.Predicate {
	requested := func(o client.Object) bool {
		rec, ok := o.(*analysisv1alpha1.Recommendation)
		return ok && evaluationRequested(rec)
	}

	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false }, // After a start the rule itself is reconciled.
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return requested(e.ObjectNew) && !requested(e.ObjectOld) },
	}
}

// NewRuleReconciler returns a reconciler of rules that uses the clients of a manager.
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
			Sources: workload.CachedSources(mgr.GetClient(), mgr.GetAPIReader(), pageSize),
			Scales:  mgr.GetClient(),
			Scheme:  mgr.GetScheme(),
		},
		Kinds:          DiscoveryKinds{Mapper: mapper, Preferred: disco.ServerPreferredResources},
		History:        cfg.History,
		Reaction:       cfg.Reaction,
		Pricer:         cfg.Pricer,
		Settings:       cfg.Settings.Content,
		Namespace:      cfg.Namespace,
		ListTimeout:    listTimeout,
		HistoryTimeout: historyTimeout,
		Workers:        maxConcurrentWrites,
		BatchSize:      batchSize,
		Events:         mgr.GetEventRecorder("craned"),
		Metrics:        metrics,
		Clock:          cfg.Clock,
		Backoff:        workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
	}, nil
}

// AddIndexes adds the indexes of this package. Package targetindex has an index of its own.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &analysisv1alpha1.Recommendation{}, indexRuleUID, ruleUIDsOf)
	if err != nil {
		return fmt.Errorf("indexing recommendations by rule: %w", err)
	}

	for _, o := range []client.Object{&analysisv1alpha1.Analytics{}, &analysisv1alpha1.RecommendationRule{}} {
		if err := indexer.IndexField(ctx, o, indexAnalyticsUID, analyticsUID); err != nil {
			return fmt.Errorf("indexing %T by the UID of the analytics: %w", o, err)
		}
	}

	return nil
}

// ruleUIDsOf returns the UIDs by which Recommendations are indexed: that of their rule and, for those that gocrane created,
// that of their Analytics.
func ruleUIDsOf(o client.Object) []string {
	var out []string
	for _, key := range []string{analysisv1alpha1.LabelRuleUID, analysisv1alpha1.LabelAnalyticsUID} {
		if uid := o.GetLabels()[key]; uid != "" {
			out = append(out, uid)
		}
	}

	return out
}

// mapTargetToRecommendations returns requests for the Recommendations of a workload.
func mapTargetToRecommendations(reader client.Reader, kind schema.GroupVersionKind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		all, err := targetindex.ListRecommendations(ctx, reader, targetindex.Key{
			Group:     kind.Group,
			Kind:      kind.Kind,
			Namespace: o.GetNamespace(),
			Name:      o.GetName(),
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

// deletionsOnly passes deletions.
func deletionsOnly() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
	}
}
