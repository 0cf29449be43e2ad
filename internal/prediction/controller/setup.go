// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/enqueue"
	"crane.io/crane/internal/kube/fairqueue"
)

// Config configures the controller of TimeSeriesPredictions.
type Config struct {
	Predictor Predictor
	Selector  Selector
	Isolation Isolation
	// SystemNamespace is Crane's own, with the predictions of nodes.
	SystemNamespace string
	// Frequency is the interval between reconciliations of an object; MaxConcurrent is the number of concurrent ones.
	Frequency     time.Duration
	MaxConcurrent int
	// Registry registers the metrics.
	Registry prometheus.Registerer
	Clock    clock.PassiveClock
}

// AddToManager adds the controller of TimeSeriesPredictions to a manager that has not started.
func AddToManager(mgr manager.Manager, cfg Config) error {
	metrics := NewMetrics(cfg.Predictor.Accuracy, cfg.SystemNamespace)
	if err := cfg.Registry.Register(metrics); err != nil {
		return fmt.Errorf("registering the metrics of predictions: %w", err)
	}

	shares := fairqueue.ByNamespace(cfg.Clock)
	err := builder.ControllerManagedBy(mgr).
		Named("timeseriesprediction").
		// The status is written by this controller: only changes of the spec matter.
		For(&predictionv1alpha1.TimeSeriesPrediction{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(shares.Options(cfg.MaxConcurrent, cfg.MaxConcurrent/4)).
		Complete(shares.Reconciler(enqueue.OnConflict(&Reconciler{
			Client:        mgr.GetClient(),
			Predictor:     cfg.Predictor,
			Selector:      cfg.Selector,
			Metrics:       metrics,
			Isolation:     cfg.Isolation,
			NodeTemplates: &NodeTemplates{Reader: mgr.GetAPIReader(), Namespace: cfg.SystemNamespace, Clock: cfg.Clock},
			Frequency:     cfg.Frequency,
			Clock:         cfg.Clock,
		})))
	if err != nil {
		return fmt.Errorf("building the controller of time series predictions: %w", err)
	}

	return nil
}

// AddNodesToManager adds the controller of ClusterNodePredictions to a manager that has not started.
func AddNodesToManager(ctx context.Context, mgr manager.Manager, systemNamespace string, clk clock.PassiveClock) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &predictionv1alpha1.TimeSeriesPrediction{}, indexOwner, ownerUID); err != nil {
		return fmt.Errorf("indexing predictions by owner: %w", err)
	}

	shares := fairqueue.ByNamespace(clk)
	err := builder.ControllerManagedBy(mgr).
		Named("clusternodeprediction").
		For(&predictionv1alpha1.ClusterNodePrediction{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&predictionv1alpha1.TimeSeriesPrediction{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// All objects are enqueued, because a node may have left a selector.
		WatchesMetadata(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(enqueue.All[predictionv1alpha1.ClusterNodePredictionList](mgr.GetClient())),
			builder.WithPredicates(nodeSelectionChanged())).
		WithOptions(shares.Options(2, 1)).
		Complete(shares.Reconciler(enqueue.OnConflict(&NodeReconciler{
			Client:          mgr.GetClient(),
			Live:            mgr.GetAPIReader(),
			Clock:           clk,
			SystemNamespace: systemNamespace,
		})))
	if err != nil {
		return fmt.Errorf("building the controller of cluster node predictions: %w", err)
	}

	return nil
}

func ownerUID(o client.Object) []string {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil && ref.Kind == "ClusterNodePrediction" {
		return []string{string(ref.UID)}
	}

	return nil
}

// nodeSelectionChanged passes events that change whether a node is selected; nodes are updated all the time.
func nodeSelectionChanged() predicate.Predicate {
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
				(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
		},
	}
}
