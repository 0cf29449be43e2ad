// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Substitute replaces a workload as the target of an HPA, so that the HPA's decisions are visible and the workload is not
// scaled. The controller creates it for an EffectiveHorizontalPodAutoscaler with the strategy Preview.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.labelSelector
// +kubebuilder:resource:shortName=subs
// +kubebuilder:printcolumn:name="REPLICAS",type=integer,JSONPath=`.status.replicas`,description="The number of replicas of the workload."
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type Substitute struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec configures the workload that this object replaces.
	Spec SubstituteSpec `json:"spec"`
	// Status holds the values that the HPA reads. The controller writes it.
	// +optional
	Status SubstituteStatus `json:"status,omitzero"`
}

// SubstituteSpec configures the workload that a Substitute replaces.
type SubstituteSpec struct {
	// Replicas is the number of replicas that the HPA requested, from 0 up. Written through the scale subresource.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// SubstituteTargetRef is the replaced workload, in the same namespace.
	// +kubebuilder:validation:XValidation:rule="size(self.kind) > 0",fieldPath=".kind",reason="FieldValueRequired",message="the kind of the target is required"
	// +kubebuilder:validation:XValidation:rule="size(self.name) > 0",fieldPath=".name",reason="FieldValueRequired",message="the name of the target is required"
	// +kubebuilder:validation:XValidation:rule="size(self.kind) <= 253 && size(self.name) <= 253 && (!has(self.apiVersion) || size(self.apiVersion) <= 317)",message="kind and name have at most 253 characters, apiVersion 317"
	// +kubebuilder:validation:XValidation:rule="self.name == '' || self.name.matches('^[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?$')",fieldPath=".name",message="a name has letters, digits and the characters . _ : -"
	// +kubebuilder:validation:XValidation:rule="self.kind.matches('^[A-Za-z0-9-]*$') && (!has(self.apiVersion) || self.apiVersion.matches('^[A-Za-z0-9./-]*$'))",message="kind and apiVersion have the characters that Kubernetes allows in them"
	SubstituteTargetRef autoscalingv2.CrossVersionObjectReference `json:"substituteTargetRef"`
}

// SubstituteStatus holds the values that the HPA reads.
type SubstituteStatus struct {
	// LabelSelector selects the pods of the workload, in the written form of a label selector.
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`

	// Replicas is the current number of replicas of the workload, by which the HPA divides totals.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
}

// SubstituteList is a list of Substitutes.
//
// +kubebuilder:object:root=true
type SubstituteList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the Substitutes of the list.
	Items []Substitute `json:"items"`
}
