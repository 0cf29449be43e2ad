// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CPUManagerPolicy is the component that assigns cores to containers.
//
// +kubebuilder:validation:Enum=None;Static
type CPUManagerPolicy string

// The cpu manager policies.
const (
	// CPUManagerPolicyNone means that the kubelet assigns cores.
	CPUManagerPolicyNone CPUManagerPolicy = "None"
	// CPUManagerPolicyStatic means that Crane's agent assigns cores.
	CPUManagerPolicyStatic CPUManagerPolicy = "Static"
)

// TopologyManagerPolicy determines whether a pod without its own annotation may spread over NUMA zones.
//
// +kubebuilder:validation:Enum=None;SingleNUMANodePodLevel
type TopologyManagerPolicy string

// The topology manager policies.
const (
	// TopologyManagerPolicyNone lets pods spread over zones.
	TopologyManagerPolicyNone TopologyManagerPolicy = "None"
	// TopologyManagerPolicySingleNUMANodePodLevel keeps all containers of a pod in one zone.
	TopologyManagerPolicySingleNUMANodePodLevel TopologyManagerPolicy = "SingleNUMANodePodLevel"
)

// ZoneType is the type of a zone.
//
// +kubebuilder:validation:Enum=Node;Socket;Core
type ZoneType string

// The zone types.
const (
	// ZoneTypeNode is a NUMA node.
	ZoneTypeNode ZoneType = "Node"
	// ZoneTypeSocket is a socket.
	ZoneTypeSocket ZoneType = "Socket"
	// ZoneTypeCore is a physical core.
	ZoneTypeCore ZoneType = "Core"
)

// NodeResourceTopology holds the NUMA zones of the node of the same name. The agent writes it, the scheduler reads it.
// Its fields are at the root; it has no spec and no status.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nrt
// +kubebuilder:printcolumn:name="CRANE CPU MANAGER POLICY",type=string,JSONPath=`.craneManagerPolicy.cpuManagerPolicy`
// +kubebuilder:printcolumn:name="CRANE TOPOLOGY MANAGER POLICY",type=string,JSONPath=`.craneManagerPolicy.topologyManagerPolicy`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeResourceTopology struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// CraneManagerPolicy is the assignment of cores and zones on the node.
	CraneManagerPolicy ManagerPolicy `json:"craneManagerPolicy"`

	// Reserved is the capacity that the kubelet reserves for itself and for the system, by resource.
	// +optional
	Reserved corev1.ResourceList `json:"reserved,omitempty"`

	// Zones are the zones of the node. At most 1024.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Zones []Zone `json:"zones,omitempty"`

	// Attributes are other facts about the node. The key go.crane.io/reserved-system-cpus holds the cores that the
	// kubelet reserves, as a list such as 0-1,8.
	// +optional
	Attributes map[string]string `json:"attributes,omitempty"`
}

// ManagerPolicy is the assignment of cores and zones on a node.
type ManagerPolicy struct {
	// CPUManagerPolicy is None (the kubelet assigns cores) or Static (Crane's agent does).
	CPUManagerPolicy CPUManagerPolicy `json:"cpuManagerPolicy"`

	// TopologyManagerPolicy is None (pods may spread over zones) or SingleNUMANodePodLevel (a pod stays in one zone),
	// for pods without their own annotation. Defaults to SingleNUMANodePodLevel.
	// +kubebuilder:default=SingleNUMANodePodLevel
	TopologyManagerPolicy TopologyManagerPolicy `json:"topologyManagerPolicy"`
}

// Zone is a part of a node.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'Node' || self.name.matches('^node[0-9]+$')",fieldPath=".name",message="the name of a zone of the type Node is node and its NUMA id, such as node0"
type Zone struct {
	// Name of the zone, unique in the list; node0 for the NUMA node with the id 0.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Type is Node (a NUMA node), Socket or Core.
	Type ZoneType `json:"type"`

	// Parent is the name of the enclosing zone, for other readers. It is checked and has no effect in Crane.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Parent string `json:"parent,omitempty"`

	// Costs are the distances to the zones.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	Costs []CostInfo `json:"costs,omitempty"`

	// Attributes are other properties of the zone, for other readers: they have no effect in Crane.
	// +optional
	Attributes map[string]string `json:"attributes,omitempty"`

	// Resources are the resources of the zone.
	// +optional
	Resources *ResourceInfo `json:"resources,omitempty"`
}

// CostInfo is the distance to a zone.
type CostInfo struct {
	// Name of the other zone.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Value is the distance, from 0 up; 10 is the zone itself.
	// +kubebuilder:validation:Minimum=0
	Value int64 `json:"value"`
}

// ResourceInfo is what a zone has.
type ResourceInfo struct {
	// Capacity is all that the zone has, by resource.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// Allocatable is the part that pods can use, by resource.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`

	// ReservedCPUNums is the number of cores of the zone that are reserved, from 0 up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReservedCPUNums int32 `json:"reservedCPUNums,omitempty"`
}

// NodeResourceTopologyList is a list of NodeResourceTopologies.
//
// +kubebuilder:object:root=true
type NodeResourceTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the NodeResourceTopologies of the list.
	Items []NodeResourceTopology `json:"items"`
}
