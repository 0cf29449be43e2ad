// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/optionalcrd"
	"crane.io/crane/internal/kube/podwebhook"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/prediction/predictor"
	costcontroller "crane.io/crane/internal/recommendation/controller/clustercost"
	"crane.io/crane/internal/recommendation/controller/oomrecord"
)

// dependencies are what features are made of: the options, the manager, and what several features share. It lives while the
// manager is put together.
type dependencies struct {
	*Options

	mgr manager.Manager
	// mapper maps optional kinds for all controllers.
	mapper meta.ResettableRESTMapper
	// data are all data sources; source is Prometheus among them, nil where it is not: features that cannot do without say
	// promQL in their line.
	data   *sources
	source *prometheus.Source
	// ledger prices things, also where the cost controller is not wanted.
	ledger *costcontroller.Ledger
	// recorder of OOM kills, nil where it is not wanted.
	recorder *oomrecord.Recorder
	// models of models, nil until a feature asks models for it.
	models *predictor.Predictor
	// mutators are asked about each new pod, in this order; a feature that has one appends it.
	mutators []podwebhook.Mutator
	// validateRecommender says why a rule's recommender could not run, nil where nobody runs them.
	validateRecommender func(analysisv1alpha1.Recommender) error
}

// newDependencies builds what features share. It sends nothing.
func newDependencies(ctx context.Context, mgr manager.Manager, o *Options) (*dependencies, error) {
	data, err := newSources(ctx, mgr, o)
	if err != nil {
		return nil, err
	}
	if err := ctrlmetrics.Registry.Register(data.list); err != nil {
		return nil, fmt.Errorf("registering the metrics of data sources: %w", err)
	}
	ledger, err := newCostLedger(mgr, o, data.list.Recent())
	if err != nil {
		return nil, err
	}
	mapper, err := optionalcrd.NewMapper(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	return &dependencies{Options: o, mgr: mgr, mapper: mapper, data: data, source: data.prom, ledger: ledger}, nil
}

// predictor returns the owner of models, and adds it to the manager for the first who asks. While nobody asks it for a
// forecast it does nothing.
func (p *dependencies) predictor(ctx context.Context) (*predictor.Predictor, error) {
	if p.models != nil {
		return p.models, nil
	}
	owner, err := addPredictor(ctx, p)
	if err != nil {
		return nil, err
	}
	p.models = owner
	return owner, nil
}
