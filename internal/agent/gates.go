// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"k8s.io/component-base/featuregate"

	gates "crane.io/crane/internal/component/featuregate"
)

// servedGates returns the feature gates the agent uses. --enforce controls what their parts may change.
func servedGates() []featuregate.Feature {
	return []featuregate.Feature{gates.NodeResource, gates.PodResource, gates.NodeResourceTopology, gates.CraneCPUManager}
}

func isServedGate(gate featuregate.Feature) bool { return slices.Contains(servedGates(), gate) }
