// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"crane.io/crane/internal/metrics"
	costcontroller "crane.io/crane/internal/recommendation/controller/clustercost"
	"crane.io/crane/internal/recommendation/pricebook"
)

const (
	// shortestCostInterval keeps the lists of all pods and the queries of their use from being a load of their own.
	shortestCostInterval = 10 * time.Second
	// costPageSize is how many objects are listed at once.
	costPageSize = 500
)

// newCostLedger reads the price book and builds the books of the cluster. Where the cost controller is not wanted they still
// price recommendations.
func newCostLedger(mgr manager.Manager, o *Options, usage metrics.UsageReader) (*costcontroller.Ledger, error) {
	book, err := pricebook.Load(o.PriceBook)
	if err != nil {
		return nil, fmt.Errorf("--price-book: %w", err)
	}
	ledger, err := costcontroller.New(costcontroller.Config{
		PriceBook: book,
		Cluster:   newLiveLister(mgr),
		Usage:     usage,
		Interval:  o.CostInterval,
		Clock:     clock.RealClock{},
	})
	if err != nil {
		return nil, fmt.Errorf("building the ledger: %w", err)
	}
	return ledger, nil
}

// addCost lets the books of the cluster be kept and exported.
func addCost(_ context.Context, p *dependencies) error {
	if err := ctrlmetrics.Registry.Register(p.ledger); err != nil {
		return fmt.Errorf("registering the metrics of costs: %w", err)
	}
	if err := p.mgr.Add(p.ledger); err != nil {
		return fmt.Errorf("adding the ledger: %w", err)
	}
	return nil
}
