// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AvoidanceAction is what the agent does when a rule of a NodeQOS fires: throttle pods, evict pods, or, with neither,
// only keep new pods away. Every rule that fires keeps new pods away.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=avoid
type AvoidanceAction struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is done.
	Spec AvoidanceActionSpec `json:"spec"`
	// Status says whether the action can be used, written by Crane.
	// +optional
	Status AvoidanceActionStatus `json:"status,omitzero"`
}

// AvoidanceActionSpec says what is done.
type AvoidanceActionSpec struct {
	// CoolDownSeconds is how long after the last time that a rule fired new pods are still kept away, in seconds, from
	// 1 up. Defaults to 300.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	CoolDownSeconds *int32 `json:"coolDownSeconds,omitempty"`

	// Throttle takes cpu from pods, step by step.
	// +optional
	Throttle *ThrottleAction `json:"throttle,omitempty"`

	// Eviction evicts pods, one by one, until the rule no longer holds.
	// +optional
	Eviction *EvictionAction `json:"eviction,omitempty"`

	// Description is for the reader; at most 1024 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
}

// ThrottleAction takes resources from pods.
type ThrottleAction struct {
	// CPUThrottle takes cpu.
	// +optional
	CPUThrottle *CPUThrottle `json:"cpuThrottle,omitempty"`

	// MemoryThrottle takes memory. gocrane ignored it.
	// +optional
	MemoryThrottle *MemoryThrottle `json:"memoryThrottle,omitempty"`
}

// CPUThrottle takes cpu from pods.
type CPUThrottle struct {
	// MinCPURatio is the least that a container keeps, in percent of its cpu limit, from 0 to 100. It always keeps what
	// it requests.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MinCPURatio int32 `json:"minCPURatio,omitempty"`

	// StepCPURatio is how much is taken or given back in one step, in percent of the present quota, from 0 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	StepCPURatio int32 `json:"stepCPURatio,omitempty"`
}

// MemoryThrottle takes memory from pods.
type MemoryThrottle struct {
	// ForceGC reclaims the page cache of pods. Defaults to false.
	// +optional
	ForceGC bool `json:"forceGC,omitempty"`
}

// EvictionAction evicts pods.
type EvictionAction struct {
	// TerminationGracePeriodSeconds is the time that an evicted pod has to end, in seconds, from 0 up. Absent means the
	// pod's own. gocrane ignored it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TerminationGracePeriodSeconds *int32 `json:"terminationGracePeriodSeconds,omitempty"`
}

// AvoidanceActionStatus says whether an action can be used.
type AvoidanceActionStatus struct {
	// Conditions say whether the action can be used and why not.
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
