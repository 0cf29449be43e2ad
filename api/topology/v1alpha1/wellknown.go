// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Annotations of a Pod.
const (
	// AnnotationPodCPUPolicy selects the cores of the pod; its values are the CPUPolicy constants.
	AnnotationPodCPUPolicy = "topology.crane.io/cpu-policy"
	// AnnotationPodTopologyAwareness determines whether the whole pod must fit into one NUMA zone; a Go boolean such as true.
	AnnotationPodTopologyAwareness = "topology.crane.io/topology-awareness"
	// AnnotationPodTopologyResult holds the zones that the scheduler chose, as the JSON of a list of Zone. Each
	// zone has a name, the type Node and resources.capacity.
	AnnotationPodTopologyResult = "topology.crane.io/topology-result"
	// AnnotationPodExcludeReservedCPUs, with the value "true", keeps the pod off the cores that are reserved.
	AnnotationPodExcludeReservedCPUs = "topology.crane.io/exclude-reserved-cpus"
)

// The values of AnnotationPodCPUPolicy.
const (
	// CPUPolicyNone shares the cores that are not exclusive to a container.
	CPUPolicyNone = "none"
	// CPUPolicyExclusive reserves cores for the container.
	CPUPolicyExclusive = "exclusive"
	// CPUPolicyNUMA shares the cores of its NUMA zones.
	CPUPolicyNUMA = "numa"
	// CPUPolicyImmovable has fixed cores, which pods with shared cores may also use.
	CPUPolicyImmovable = "immovable"
)

const (
	// LabelNodeTopologyAwareness, on a Node, with a Go boolean that is false, lets pods spread over NUMA zones.
	LabelNodeTopologyAwareness = "topology.crane.io/topology-awareness"
	// AttributeReservedSystemCPUs is the key in attributes of the cores that the kubelet reserves, as a list such as 0-1,8.
	AttributeReservedSystemCPUs = "go.crane.io/reserved-system-cpus"
	// ZoneNamePrefix is the prefix of the name of a zone of the type Node; its NUMA id follows.
	ZoneNamePrefix = "node"
)
