// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import "crane.io/crane/internal/scheduler/pluginconfig"

// verdict is what the store says of a request on a node.
type verdict int

const (
	// unknown: the node has no NodeResourceTopology.
	unknown verdict = iota
	// zoneless: it has one that names no NUMA zone.
	zoneless
	// unmanaged: the kubelet assigns CPUs there.
	unmanaged
	// fits: the zones have it free.
	fits
	// noZone: the pod has to fit into one zone, and none has that much free; noZoneEver: none is that large.
	noZone
	noZoneEver
	// tooLittle: all zones together have less free; tooLittleEver: they are smaller.
	tooLittle
	tooLittleEver
)

// passes reports whether a pod may go there, where nodes without topology are treated as given.
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
