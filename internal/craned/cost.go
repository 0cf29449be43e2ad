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
func newCostLedger(mgr manager.Manager, o *Options, usage metrics.UsageReader, capacity metrics.CapacityReader) (*costcontroller.Ledger, error) {
	book, err := pricebook.Load(o.PriceBook)
	if err != nil {
		return nil, fmt.Errorf("--price-book: %w", err)
	}

	ledger, err := costcontroller.New(costcontroller.Config{
		PriceBook: book,
		Cluster:   newLiveLister(mgr),
		Usage:     usage,
		Capacity:  capacity,
		Interval:  o.CostInterval,
		Clock:     wallclock.New(),
	})
	if err != nil {
		return nil, fmt.Errorf("building the ledger: %w", err)
	}

	return ledger, nil
}

// addCost adds the controllers that account and export the cost of the cluster, and record what is saved.
func addCost(_ context.Context, d *dependencies) error {
	if err := metricsRegistry().Register(d.ledger); err != nil {
		return fmt.Errorf("registering the metrics of costs: %w", err)
	}

	if err := d.mgr.Add(d.ledger); err != nil {
		return fmt.Errorf("adding the ledger: %w", err)
	}

	cfg := savingsrecorder.Config{
		Ledger:    d.ledger,
		Live:      d.mgr.GetAPIReader(),
		Writer:    d.mgr.GetClient(),
		Pods:      newLiveLister(d.mgr),
		Namespace: d.Namespace,
		Interval:  d.CostInterval,
		Clock:     wallclock.New(),
		Notify:    d.notify,
	}

	report, err := d.Notifications.schedule()
	if err != nil {
		return fmt.Errorf("--weekly-report: %w", err)
	}

	cfg.Report = report

	// Without the gate there are no Recommendations to record.
	if d.FeatureGates.Enabled(featuregate.Analysis) {
		cfg.Recommendations = d.mgr.GetClient()
	}

	recorder := savingsrecorder.New(cfg)
	if err := metricsRegistry().Register(recorder); err != nil {
		return fmt.Errorf("registering the metrics of the record of savings: %w", err)
	}

	if err := d.mgr.Add(recorder); err != nil {
		return fmt.Errorf("adding the recorder of savings: %w", err)
	}

	return nil
}
