// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AvoidanceAction configures what the agent does when a rule of a NodeQOS fires: throttle pods, evict pods, or neither.
// Every rule that fires also prevents new pods from being scheduled on the node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=avoid
type AvoidanceAction struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec configures the action.
	Spec AvoidanceActionSpec `json:"spec"`
	// Status is kept for objects of gocrane. Crane does not write it.
	// +optional
	Status AvoidanceActionStatus `json:"status,omitzero"`
}

// AvoidanceActionSpec configures the action.
type AvoidanceActionSpec struct {
	// CoolDownSeconds is the time after the last firing of a rule until the node accepts new pods, in seconds, from 1 up.
	// Defaults to 300.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	CoolDownSeconds *int32 `json:"coolDownSeconds,omitempty"`

	// Throttle limits the CPU of pods, step by step.
	// +optional
	Throttle *ThrottleAction `json:"throttle,omitempty"`

	// Eviction evicts pods, one by one, until the rule no longer fires.
	// +optional
	Eviction *EvictionAction `json:"eviction,omitempty"`

	// Description is a comment without effect; at most 1024 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
}

// ThrottleAction limits the resources of pods.
type ThrottleAction struct {
	// CPUThrottle limits CPU.
	// +optional
	CPUThrottle *CPUThrottle `json:"cpuThrottle,omitempty"`

	// MemoryThrottle reclaims memory. gocrane ignored it.
	// +optional
	MemoryThrottle *MemoryThrottle `json:"memoryThrottle,omitempty"`
}

// CPUThrottle limits the CPU of pods.
type CPUThrottle struct {
	// MinCPURatio is the minimum quota of a container, in percent of its CPU limit, from 0 to 100. The quota never falls
	// below the request.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MinCPURatio int32 `json:"minCPURatio,omitempty"`

	// StepCPURatio is the change of the quota in one step, in percent of the current quota, from 0 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	StepCPURatio int32 `json:"stepCPURatio,omitempty"`
}

// MemoryThrottle reclaims memory of pods.
type MemoryThrottle struct {
	// ForceGC reclaims the page cache of pods. Defaults to false.
	// +optional
	ForceGC bool `json:"forceGC,omitempty"`
}

// EvictionAction evicts pods.
type EvictionAction struct {
	// TerminationGracePeriodSeconds is the grace period of an evicted pod in seconds, from 0 up. Absent means the pod's own.
	// gocrane ignored it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TerminationGracePeriodSeconds *int32 `json:"terminationGracePeriodSeconds,omitempty"`
}

// AvoidanceActionStatus is kept for objects of gocrane. Crane does not write it.
type AvoidanceActionStatus struct {
	// Conditions are kept for objects of gocrane. Crane does not write them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AvoidanceActionList is a list of AvoidanceActions.
//
// +kubebuilder:object:root=true
type AvoidanceActionList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the AvoidanceActions of the list.
	Items []AvoidanceAction `json:"items"`
}
