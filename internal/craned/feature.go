// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corefeaturegate "k8s.io/component-base/featuregate"

	"crane.io/crane/internal/component/featuregate"
)

// feature is a function of craned: its names in --controllers, its feature gate, and its constructor. A feature consists of a
// file of this package, a line in features, and, if it has flags, a line in Options.
type feature struct {
	// names are the names in --controllers; the feature is added if one of them is enabled. Most features have one; several names
	// share a part. A feature without a name depends on its gate only.
	names []string
	// gate must be enabled; empty for none.
	gate corefeaturegate.Feature
	// kinds are the kinds of objects that only this feature processes.
	kinds []string
	// add builds the feature and adds it to the manager. It sends no request; the feature starts with the manager.
	add func(context.Context, *dependencies) error
}

// features lists the functions of craned in the order in which they are added.
func features() []feature {
	return []feature{
		{add: addTracing},
		{add: addWebAPI},
		{add: addNotifications}, // Before the features that send events.
		{add: addOptOuts},
		{names: []string{costController}, add: addCost},
		{names: []string{oomController}, add: addOOM},
		{add: addTargets},
		{names: []string{recommendationController}, gate: featuregate.Analysis, kinds: []string{"RecommendationRule", "Analytics"}, add: addRecommendation},
		{names: []string{adoptionController}, gate: featuregate.Analysis, add: addAdoption},
		{names: []string{timeSeriesPredictionController}, gate: featuregate.TimeSeriesPrediction, kinds: []string{"TimeSeriesPrediction"}, add: addTimeSeriesPrediction},
		{
			names: []string{clusterNodePredictionController}, gate: featuregate.ClusterNodePrediction, kinds: []string{"ClusterNodePrediction"},
			add: addClusterNodePrediction,
		},
		{
			names: []string{effectiveHPAController}, gate: featuregate.Autoscaling,
			kinds: []string{"EffectiveHorizontalPodAutoscaler", "Substitute"}, add: addAutoscaling,
		},
		{
			names: []string{effectiveVPAController}, gate: featuregate.Autoscaling, kinds: []string{"EffectiveVerticalPodAutoscaler"},
			add: addVerticalAutoscaling,
		},
		{names: []string{nodeLoadController, rebalanceController}, add: addScheduling},
		{gate: featuregate.QOSInitializer, add: addQOSInitializer},
		{add: addWebhooks}, // After all features that mutate new pods.
	}
}

// isEnabled reports whether a feature is to be added.
func (o *Options) isEnabled(f feature) bool {
	if f.gate != "" && !o.FeatureGates.Enabled(f.gate) {
		return false
	}

	return len(f.names) == 0 || slices.ContainsFunc(f.names, o.runsController)
}

// disabledKinds returns the kinds that no controller processes, with the setting that disables it.
func (o *Options) disabledKinds() map[string]string {
	out := map[string]string{}
	for _, f := range features() {
		var reason string
		switch {
		case f.gate != "" && !o.FeatureGates.Enabled(f.gate):
			reason = fmt.Sprintf("the feature gate %s is off", f.gate)
		case !o.isEnabled(f):
			reason = fmt.Sprintf("--controllers excludes %s", strings.Join(f.names, ", "))
		default:
			continue
		}

		for _, kind := range f.kinds {
			out[kind] = reason
		}
	}

	return out
}

// addFeatures adds the enabled features.
func addFeatures(ctx context.Context, d *dependencies) error {
	for _, f := range features() {
		if !d.isEnabled(f) {
			continue
		}

		if err := f.add(ctx, d); err != nil {
			return err
		}
	}

	return nil
}

// controllerNames returns the names that --controllers accepts.
func controllerNames() []string {
	var out []string
	for _, f := range features() {
		out = append(out, f.names...)
	}

	return out
}

// gateHasEffect reports whether a gate has an effect on craned.
func gateHasEffect(gate corefeaturegate.Feature) bool {
	return slices.ContainsFunc(features(), func(f feature) bool { return f.gate == gate })
}
