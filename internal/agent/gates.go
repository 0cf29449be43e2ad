// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"k8s.io/component-base/featuregate"

	gates "crane.io/crane/internal/component/featuregate"
)

// servedGates are those that have a function in the agent. What a part may change is --enforce's to say.
func servedGates() []featuregate.Feature {
	return []featuregate.Feature{gates.NodeResource, gates.PodResource, gates.NodeResourceTopology, gates.CraneCPUManager}
}

func isServedGate(gate featuregate.Feature) bool { return slices.Contains(servedGates(), gate) }
