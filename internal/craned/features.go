// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"k8s.io/component-base/featuregate"
)

// Feature gates under gocrane's names. Those that begin with a capital have a function in craned so far; the others are
// accepted, so that manifests keep working, and Complete warns where one of them is set.
const (
	// Analysis (alpha, on): RecommendationRules and Recommendations.
	Analysis featuregate.Feature = "Analysis"
	// TimeSeriesPrediction (alpha, on): forecasts in the status of TimeSeriesPredictions.
	TimeSeriesPrediction featuregate.Feature = "TimeSeriesPrediction"
	// ClusterNodePrediction (alpha, off): a TimeSeriesPrediction for each of a set of nodes.
	ClusterNodePrediction featuregate.Feature = "ClusterNodePrediction"
	// QOSInitializer (alpha, off): an init container for new pods of low CPU priority.
	QOSInitializer featuregate.Feature = "QOSInitializer"
	// EffectiveHPA (alpha, on) is gocrane's gate Autoscaling: EffectiveHorizontalPodAutoscalers, Substitutes and
	// EffectiveVerticalPodAutoscalers.
	EffectiveHPA featuregate.Feature = "Autoscaling"

	nodeResource         featuregate.Feature = "NodeResource"
	podResource          featuregate.Feature = "PodResource"
	nodeResourceTopology featuregate.Feature = "NodeResourceTopology"
	craneCPUManager      featuregate.Feature = "CraneCPUManager"
	dashboardControl     featuregate.Feature = "DashboardControl"
)

func newFeatureGates() featuregate.MutableFeatureGate {
	gates := featuregate.NewFeatureGate()
	// Add fails only for a gate that is added twice with different specifications, which a test rules out.
	_ = gates.Add(featureSpecs())
	return gates
}

func featureSpecs() map[featuregate.Feature]featuregate.FeatureSpec {
	on := featuregate.FeatureSpec{Default: true, PreRelease: featuregate.Alpha}
	off := featuregate.FeatureSpec{Default: false, PreRelease: featuregate.Alpha}
	return map[featuregate.Feature]featuregate.FeatureSpec{
		Analysis: on, EffectiveHPA: on, nodeResource: on, podResource: on, TimeSeriesPrediction: on,
		nodeResourceTopology: off, ClusterNodePrediction: off, craneCPUManager: off, dashboardControl: off,
		QOSInitializer: off,
	}
}
