// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import "crane.io/crane/internal/scheduler/pluginconfig"

// verdict is the result of a request on a node.
type verdict int

const (
	// unknown means that the node has no NodeResourceTopology.
	unknown verdict = iota
	// zoneless means that it has one without NUMA zones.
	zoneless
	// unmanaged means that the kubelet assigns CPUs there.
	unmanaged
	// fits means that the zones have the request free.
	fits
	// noZone means that the pod needs one zone and none has that much free, noZoneEver that none is that large.
	noZone
	noZoneEver
	// tooLittle means that all zones together have less free, tooLittleEver that they are smaller.
	tooLittle
	tooLittleEver
)

// passes reports whether a pod may use the node, given the policy for nodes without topology.
func (v verdict) passes(missing pluginconfig.MissingTopology) bool {
	switch v {
	case fits, unmanaged:
		return true
	case unknown, zoneless:
		return missing != pluginconfig.MissingTopologyReject
	default:
		return false
	}
}
