// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterNodePrediction asks for a forecast of each of a set of nodes. The controller makes a TimeSeriesPrediction
// from the template for each node, in the same namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cnp
type ClusterNodePrediction struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which nodes are meant and what is forecast of each.
	// +optional
	Spec ClusterNodePredictionSpec `json:"spec,omitzero"`
	// Status counts the objects that were made, written by the controller.
	// +optional
	Status ClusterNodePredictionStatus `json:"status,omitzero"`
}

// ClusterNodePredictionSpec says which nodes are meant and what is forecast of each.
type ClusterNodePredictionSpec struct {
	// NodeSelector are labels that a node has to have. Absent or empty means all nodes.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Template is the TimeSeriesPrediction to make for each node. Without it nothing is made.
	// +optional
	Template *TimeSeriesPredictionTemplate `json:"template,omitempty"`
}

// TimeSeriesPredictionTemplate is a TimeSeriesPrediction to be made.
type TimeSeriesPredictionTemplate struct {
	// Metadata of the objects. It is pruned: names and labels are the controller's.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec of the objects; targetRef is set to the node.
	Spec TimeSeriesPredictionSpec `json:"spec"`
}

// ClusterNodePredictionStatus counts the objects that were made.
type ClusterNodePredictionStatus struct {
	// DesiredNumberCreated is the number of nodes that match.
	// +optional
	DesiredNumberCreated int `json:"desiredNumberCreated,omitempty"`

	// CurrentNumberCreated is the number of nodes that have their TimeSeriesPrediction.
	// +optional
	CurrentNumberCreated int `json:"currentNumberCreated,omitempty"`

	// Conditions say whether all nodes are covered and why not.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterNodePredictionList is a list of ClusterNodePredictions.
//
// +kubebuilder:object:root=true
type ClusterNodePredictionList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the ClusterNodePredictions of the list.
	Items []ClusterNodePrediction `json:"items"`
}
