// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	costcontroller "crane.io/crane/internal/controller/cost"
	"crane.io/crane/internal/controller/oom"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/predictor"
	"crane.io/crane/internal/webhook/pods"
)

// parts are what features are made of: the options, the manager, and what several features share. It lives while the
// manager is put together.
type parts struct {
	*Options

	mgr    manager.Manager
	source *prometheus.Source
	// ledger prices things, also where the cost controller is not wanted.
	ledger *costcontroller.Ledger
	// recorder of OOM kills, nil where it is not wanted.
	recorder *oom.Recorder
	// owner of models, nil until a feature asks models for it.
	owner *predictor.Predictor
	// mutators are asked about each new pod, in this order; a feature that has one appends it.
	mutators []pods.Mutator
}

// newParts builds what features share. It sends nothing.
func newParts(mgr manager.Manager, o *Options) (*parts, error) {
	source, err := newSource(o.Prometheus)
	if err != nil {
		return nil, err
	}
	ledger, err := newLedger(mgr, o, source)
	if err != nil {
		return nil, err
	}
	return &parts{Options: o, mgr: mgr, source: source, ledger: ledger}, nil
}

// models returns the owner of models, and adds it to the manager for the first who asks. While nobody asks it for a
// forecast it does nothing.
func (p *parts) models(ctx context.Context) (*predictor.Predictor, error) {
	if p.owner != nil {
		return p.owner, nil
	}
	owner, err := addPredictor(ctx, p)
	if err != nil {
		return nil, err
	}
	p.owner = owner
	return owner, nil
}
