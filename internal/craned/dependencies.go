// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/component/notification"
	"crane.io/crane/internal/kube/optionalcrd"
	"crane.io/crane/internal/kube/pause"
	"crane.io/crane/internal/kube/podwebhook"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/prediction/predictor"
	costcontroller "crane.io/crane/internal/recommendation/controller/clustercost"
	"crane.io/crane/internal/recommendation/controller/oomrecord"
)

// dependencies holds the options, the manager and the objects that several features share, while the manager is built.
type dependencies struct {
	*Options

	mgr probedManager
	// pause is the switch that stops all writes.
	pause *pause.Switch
	// mapper maps kinds for all controllers, including kinds whose CRD may be absent.
	mapper meta.ResettableRESTMapper
	// data holds all data sources. source is the Prometheus among them, or nil.
	data   *sources
	source *prometheus.Source
	// ledger holds prices. It exists even where the cost controller is off.
	ledger *costcontroller.Ledger
	// recorder records OOM kills; nil where recording is off.
	recorder *oomrecord.Recorder
	// models computes forecasts; nil until a feature needs it.
	models *predictor.Predictor
	// notify sends events to people; nil without an endpoint.
	notify func(notification.Event)
	// mutators change each new pod, in this order; features append theirs.
	mutators []podwebhook.Mutator
	// validateRecommender returns an error for a recommender that could not run; nil where the recommendation controller is off.
	validateRecommender func(analysisv1alpha1.Recommender) error
}

// newDependencies creates the objects that features share. It sends no request.
func newDependencies(ctx context.Context, mgr probedManager, o *Options) (*dependencies, error) {
	data, err := newSources(ctx, mgr, o)
	if err != nil {
		return nil, err
	}

	if err := metricsRegistry().Register(data.list); err != nil {
		return nil, fmt.Errorf("registering the metrics of data sources: %w", err)
	}

	ledger, err := newCostLedger(mgr, o, data.list.Recent(), data.list)
	if err != nil {
		return nil, err
	}

	mapper, err := optionalcrd.NewMapper(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}

	return &dependencies{
		Options: o,
		mgr:     mgr,
		mapper:  mapper,
		data:    data,
		source:  data.prom,
		ledger:  ledger,
	}, nil
}

// predictor returns the shared predictor. The first call adds it to the manager; it is idle until a feature requests a forecast.
func (d *dependencies) predictor(ctx context.Context) (*predictor.Predictor, error) {
	if d.models != nil {
		return d.models, nil
	}

	models, err := addPredictor(ctx, d)
	if err != nil {
		return nil, err
	}

	d.models = models
	return models, nil
}
