// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	costcontroller "crane.io/crane/internal/controller/cost"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/pricebook"
	"crane.io/crane/internal/workload"
)

const (
	// shortestCostInterval keeps the lists of all pods and the queries of their use from being a load of their own.
	shortestCostInterval = 10 * time.Second
	// costPageSize is how many objects are listed at once.
	costPageSize = 500
)

// addCost reads the price book and adds the books of the cluster; where the cost controller is not wanted they still
// price recommendations.
func addCost(mgr manager.Manager, o *Options, source *prometheus.Source) (*costcontroller.Ledger, error) {
	book, err := pricebook.Load(o.PriceBook)
	if err != nil {
		return nil, fmt.Errorf("--price-book: %w", err)
	}
	// Nodes and pods are read live, page by page: a cache of all pods would cost more memory than the rest of craned.
	live := workload.Source{Reader: mgr.GetAPIReader(), PageSize: costPageSize}
	ledger, err := costcontroller.New(costcontroller.Config{
		Book:     book,
		Cluster:  &workload.Lister{Sources: func(schema.GroupVersionKind) workload.Source { return live }, Scheme: mgr.GetScheme()},
		Usage:    source,
		Interval: o.CostInterval,
		Clock:    clock.RealClock{},
	})
	if err != nil {
		return nil, fmt.Errorf("building the ledger: %w", err)
	}
	if !o.runs(costController) {
		return ledger, nil
	}
	if err := ctrlmetrics.Registry.Register(ledger); err != nil {
		return nil, fmt.Errorf("registering the metrics of costs: %w", err)
	}
	if err := mgr.Add(ledger); err != nil {
		return nil, fmt.Errorf("adding the ledger: %w", err)
	}
	return ledger, nil
}
