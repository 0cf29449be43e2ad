// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"

	"crane.io/crane/internal/agent/features"
	"crane.io/crane/internal/component/featuregate"
)

// unusedFeatures returns the kernel features that the flags leave unused, with the reason.
func (o *Options) unusedFeatures() map[string]string {
	out := map[string]string{}
	for feature, users := range map[string][]string{
		features.CPUBurst:      {enforceThrottle, enforcePodResource},
		features.CPUIdle:       {enforcePodResource},
		features.MemoryHigh:    {enforceMemory},
		features.MemoryReclaim: {enforceMemory},
	} {
		if !slices.ContainsFunc(users, o.enforces) {
			out[feature] = "--enforce names nothing that uses it (" + strings.Join(users, ", ") + ")"
		}
	}
	if !o.FeatureGates.Enabled(featuregate.NodeResourceTopology) {
		out[features.NUMA] = "--feature-gates has no " + string(featuregate.NodeResourceTopology) + "=true"
	}
	return out
}
