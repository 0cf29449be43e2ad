// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
)

// Feature gates under gocrane's names, each the coarse switch of a part of the agent. What a part may change is --enforce's to say.
const (
	// NodeResource (alpha, on): what is unused of a node is offered as gocrane.io/cpu and gocrane.io/memory.
	NodeResource featuregate.Feature = "NodeResource"
	// PodResource (alpha, on): limits of pods on reclaimed capacity.
	PodResource featuregate.Feature = "PodResource"
	// NodeResourceTopology (alpha, off): the zones of the node as an object.
	NodeResourceTopology featuregate.Feature = "NodeResourceTopology"
	// CraneCPUManager (alpha, off): CPUs of their own for containers that ask for it.
	CraneCPUManager featuregate.Feature = "CraneCPUManager"
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
	out := map[featuregate.Feature]featuregate.FeatureSpec{NodeResource: on, PodResource: on, NodeResourceTopology: off, CraneCPUManager: off}
	for _, name := range otherGates() {
		out[name] = off
	}
	return out
}

// otherGates are craned's: gocrane's agent took them as well, and did nothing with them.
func otherGates() []featuregate.Feature {
	return []featuregate.Feature{"Analysis", "Autoscaling", "TimeSeriesPrediction", "ClusterNodePrediction", "QOSInitializer", "DashboardControl"}
}

// servedGates are those that have a function in the agent.
func servedGates() []featuregate.Feature {
	return []featuregate.Feature{NodeResource, PodResource, NodeResourceTopology, CraneCPUManager}
}

// gateWarnings names the gates that were set and have no effect.
func (o *Options) gateWarnings(fs *pflag.FlagSet) []string {
	f := fs.Lookup("feature-gates")
	if f == nil || !f.Changed {
		return nil
	}
	var out []string
	for name := range featureSpecs() {
		if !slices.Contains(servedGates(), name) && strings.Contains(","+f.Value.String(), ","+string(name)+"=") {
			out = append(out, fmt.Sprintf("--feature-gates: %s has no effect on this crane-agent", name))
		}
	}
	slices.Sort(out)
	return out
}
