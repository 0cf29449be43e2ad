// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"crane.io/crane/internal/component/featuregate"
	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/metrics"
	costcontroller "crane.io/crane/internal/recommendation/controller/clustercost"
	"crane.io/crane/internal/recommendation/controller/savingsrecorder"
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

// addCost adds the controllers that account and export the cost of the cluster, and record what is saved.
func addCost(_ context.Context, p *dependencies) error {
	if err := metricsRegistry().Register(p.ledger); err != nil {
		return fmt.Errorf("registering the metrics of costs: %w", err)
	}

	if err := p.mgr.Add(p.ledger); err != nil {
		return fmt.Errorf("adding the ledger: %w", err)
	}

	cfg := savingsrecorder.Config{
		Ledger:    p.ledger,
		Live:      p.mgr.GetAPIReader(),
		Writer:    p.mgr.GetClient(),
		Pods:      newLiveLister(p.mgr),
		Namespace: p.Namespace,
		Interval:  p.CostInterval,
		Clock:     wallclock.New(),
		Notify:    p.notify,
	}

	var err error
	if cfg.Report, err = p.Notifications.schedule(); err != nil {
		return fmt.Errorf("--weekly-report: %w", err)
	}

	if p.FeatureGates.Enabled(featuregate.Analysis) {
		cfg.Recommendations = p.mgr.GetClient()
	}

	recorder := savingsrecorder.New(cfg)
	if err := metricsRegistry().Register(recorder); err != nil {
		return fmt.Errorf("registering the metrics of the record of savings: %w", err)
	}

	if err := p.mgr.Add(recorder); err != nil {
		return fmt.Errorf("adding the recorder of savings: %w", err)
	}

	return nil
}
