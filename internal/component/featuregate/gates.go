// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package featuregate has the feature gates that gocrane's binaries have in common. Each binary takes all of them, so that manifests keep
// working, and warns of those that have no function in it.
package featuregate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
)

// Gates under gocrane's names, each the coarse switch of a part of a binary.
const (
	// Analysis (alpha, on): RecommendationRules and Recommendations.
	Analysis featuregate.Feature = "Analysis"
	// TimeSeriesPrediction (alpha, on): forecasts in the status of TimeSeriesPredictions.
	TimeSeriesPrediction featuregate.Feature = "TimeSeriesPrediction"
	// ClusterNodePrediction (alpha, off): a TimeSeriesPrediction for each of a set of nodes.
	ClusterNodePrediction featuregate.Feature = "ClusterNodePrediction"
	// QOSInitializer (alpha, off): an init container for new pods of low CPU priority.
	QOSInitializer featuregate.Feature = "QOSInitializer"
	// Autoscaling (alpha, on): EffectiveHorizontalPodAutoscalers, Substitutes and EffectiveVerticalPodAutoscalers.
	Autoscaling featuregate.Feature = "Autoscaling"
	// DashboardControl (alpha, off) has no function in any binary.
	DashboardControl featuregate.Feature = "DashboardControl"

	// NodeResource (alpha, on): what is unused of a node is offered as gocrane.io/cpu and gocrane.io/memory.
	NodeResource featuregate.Feature = "NodeResource"
	// PodResource (alpha, on): limits of pods on reclaimed capacity.
	PodResource featuregate.Feature = "PodResource"
	// NodeResourceTopology (alpha, off): the zones of the node as an object.
	NodeResourceTopology featuregate.Feature = "NodeResourceTopology"
	// CraneCPUManager (alpha, off): CPUs of their own for containers that ask for it.
	CraneCPUManager featuregate.Feature = "CraneCPUManager"
)

// Specs are the stage and the default of each gate.
func Specs() map[featuregate.Feature]featuregate.FeatureSpec {
	on := featuregate.FeatureSpec{Default: true, PreRelease: featuregate.Alpha}
	off := featuregate.FeatureSpec{Default: false, PreRelease: featuregate.Alpha}
	return map[featuregate.Feature]featuregate.FeatureSpec{
		Analysis: on, Autoscaling: on, TimeSeriesPrediction: on, NodeResource: on, PodResource: on,
		ClusterNodePrediction: off, QOSInitializer: off, DashboardControl: off, NodeResourceTopology: off, CraneCPUManager: off,
	}
}

// New returns all gates at their defaults.
func New() featuregate.MutableFeatureGate {
	all := featuregate.NewFeatureGate()
	// Add fails only for a gate that is added twice with different specifications, which a test rules out.
	_ = all.Add(Specs())
	return all
}

// Warnings names the gates that the flag feature-gates has set and that have no effect on a binary.
func Warnings(fs *pflag.FlagSet, binary string, served func(featuregate.Feature) bool) []string {
	f := fs.Lookup("feature-gates")
	if f == nil || !f.Changed {
		return nil
	}
	var out []string
	for name := range Specs() {
		if !served(name) && strings.Contains(","+f.Value.String(), ","+string(name)+"=") {
			out = append(out, fmt.Sprintf("--feature-gates: %s has no effect on this %s", name, binary))
		}
	}
	slices.Sort(out)
	return out
}
