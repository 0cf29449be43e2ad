// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package featuregate defines the feature gates that gocrane's binaries share. Each binary accepts all of them, so that manifests
// keep working, and warns of those without an effect on it.
package featuregate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
)

// Gates with gocrane's names, each of which enables a part of a binary.
const (
	// Analysis (alpha, on) enables RecommendationRules and Recommendations.
	Analysis featuregate.Feature = "Analysis"
	// TimeSeriesPrediction (alpha, on) enables forecasts in the status of TimeSeriesPredictions.
	TimeSeriesPrediction featuregate.Feature = "TimeSeriesPrediction"
	// ClusterNodePrediction (alpha, off) enables a TimeSeriesPrediction for each of a set of nodes.
	ClusterNodePrediction featuregate.Feature = "ClusterNodePrediction"
	// QOSInitializer (alpha, off) enables an init container in new pods of low CPU priority.
	QOSInitializer featuregate.Feature = "QOSInitializer"
	// Autoscaling (alpha, on) enables EffectiveHorizontalPodAutoscalers, Substitutes and EffectiveVerticalPodAutoscalers.
	Autoscaling featuregate.Feature = "Autoscaling"
	// DashboardControl (alpha, off) has no effect on any binary.
	DashboardControl featuregate.Feature = "DashboardControl"

	// NodeResource (alpha, on) offers unused capacity of a node as gocrane.io/cpu and gocrane.io/memory.
	NodeResource featuregate.Feature = "NodeResource"
	// PodResource (alpha, on) enforces the limits of pods on reclaimed capacity.
	PodResource featuregate.Feature = "PodResource"
	// NodeResourceTopology (alpha, off) publishes the zones of a node as an object.
	NodeResourceTopology featuregate.Feature = "NodeResourceTopology"
	// CraneCPUManager (alpha, off) gives exclusive CPUs to containers that request them.
	CraneCPUManager featuregate.Feature = "CraneCPUManager"
)

// Specs returns the stage and the default of each gate.
func Specs() map[featuregate.Feature]featuregate.FeatureSpec {
	on := featuregate.FeatureSpec{Default: true, PreRelease: featuregate.Alpha}
	off := featuregate.FeatureSpec{Default: false, PreRelease: featuregate.Alpha}
	return map[featuregate.Feature]featuregate.FeatureSpec{
		Analysis: on, Autoscaling: on, TimeSeriesPrediction: on, NodeResource: on, PodResource: on,
		ClusterNodePrediction: off, QOSInitializer: off, DashboardControl: off, NodeResourceTopology: off, CraneCPUManager: off,
	}
}

// New returns all gates with their defaults.
func New() featuregate.MutableFeatureGate {
	all := featuregate.NewFeatureGate()
	// Add fails only for a gate that is added twice with different specifications, which a test rules out.
	_ = all.Add(Specs())

	return all
}

// Warnings returns a warning for each gate that the flag feature-gates sets and that has no effect on a binary; served reports
// whether one has.
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
