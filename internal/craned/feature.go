// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"slices"

	corefeaturegate "k8s.io/component-base/featuregate"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/component/featuregate"
)

// feature is something that craned does: what --controllers calls it, the gate before it, and how it is put together.
// A feature is a file of this package, a line in features, and, where it has flags, a line in Options.
type feature struct {
	// names are what --controllers calls it: it is added when one of them is wanted. Most have one; those with several
	// share something. None: it is always added, as far as its gate lets it.
	names []string
	// gate has to be on; empty for none.
	gate corefeaturegate.Feature
	// promQL tells that it asks questions that only Prometheus takes: without that source it is left out.
	promQL bool
	// add puts it together and gives it to the manager. It sends nothing: what runs begins with the manager.
	add func(context.Context, *dependencies) error
}

// features lists what craned does, in the order in which it is added.
func features() []feature {
	return []feature{
		{add: addWebAPI},
		{names: []string{costController}, add: addCost},
		{names: []string{oomController}, add: addOOM},
		{gate: featuregate.Analysis, add: addTargets},
		{names: []string{recommendationController}, gate: featuregate.Analysis, add: addRecommendation},
		{names: []string{adoptionController}, gate: featuregate.Analysis, add: addAdoption},
		{names: []string{timeSeriesPredictionController}, gate: featuregate.TimeSeriesPrediction, add: addTimeSeriesPrediction},
		{names: []string{clusterNodePredictionController}, gate: featuregate.ClusterNodePrediction, add: addClusterNodePrediction},
		{names: []string{effectiveHPAController}, gate: featuregate.Autoscaling, promQL: true, add: addAutoscaling},
		{names: []string{effectiveVPAController}, gate: featuregate.Autoscaling, add: addVerticalAutoscaling},
		{names: []string{nodeLoadController, rebalanceController}, add: addScheduling},
		{gate: featuregate.QOSInitializer, add: addQOSInitializer},
		{add: addWebhooks}, // After all that have something to say about new pods.
	}
}

// isEnabled tells whether a feature is to be added.
func (o *Options) isEnabled(f feature) bool {
	if f.gate != "" && !o.FeatureGates.Enabled(f.gate) {
		return false
	}
	return len(f.names) == 0 || slices.ContainsFunc(f.names, o.runsController)
}

// addFeatures adds what is wanted and can be had.
func addFeatures(ctx context.Context, p *dependencies) error {
	for _, f := range features() {
		if !p.isEnabled(f) {
			continue
		}
		if f.promQL && p.source == nil {
			ctrl.LoggerFrom(ctx).Info("Left out: --datasource has no "+dataSourceProm, "controllers", f.names)
			continue
		}
		if err := f.add(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// controllerNames are what --controllers knows.
func controllerNames() []string {
	var out []string
	for _, f := range features() {
		out = append(out, f.names...)
	}
	return out
}

// gateHasEffect tells whether a gate has a function in craned.
func gateHasEffect(gate corefeaturegate.Feature) bool {
	return slices.ContainsFunc(features(), func(f feature) bool { return f.gate == gate })
}
