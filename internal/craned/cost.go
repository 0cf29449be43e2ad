// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/metrics"
	costcontroller "crane.io/crane/internal/recommendation/controller/clustercost"
	"crane.io/crane/internal/recommendation/pricebook"
)

const (
	// shortestCostInterval is the minimum interval between two accountings, each of which lists all pods and queries their usage.
	shortestCostInterval = 10 * time.Second
	// costPageSize is the page size of lists.
	costPageSize = 500
)

// newCostLedger reads the price book and returns the cost ledger of the cluster. Without the cost controller the ledger still
// prices recommendations.
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
		Clock:     wallclock.New(),
	})
	if err != nil {
		return nil, fmt.Errorf("building the ledger: %w", err)
	}
	return ledger, nil
}

// addCost adds the controller that accounts and exports the cost of the cluster.
func addCost(_ context.Context, p *dependencies) error {
	if err := ctrlmetrics.Registry.Register(p.ledger); err != nil {
		return fmt.Errorf("registering the metrics of costs: %w", err)
	}
	if err := p.mgr.Add(p.ledger); err != nil {
		return fmt.Errorf("adding the ledger: %w", err)
	}
	return nil
}
