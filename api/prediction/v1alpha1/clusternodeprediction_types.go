// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterNodePrediction configures forecasts of a set of nodes. The controller creates a TimeSeriesPrediction from the
// template for each node, in the same namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cnp
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.desiredNumberCreated`,description="The number of nodes that match."
// +kubebuilder:printcolumn:name="Created",type=integer,JSONPath=`.status.currentNumberCreated`,description="The number of nodes that have a TimeSeriesPrediction."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterNodePrediction struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec configures the nodes and the metrics to forecast.
	// +optional
	Spec ClusterNodePredictionSpec `json:"spec,omitzero"`
	// Status counts the created objects. The controller writes it.
	// +optional
	Status ClusterNodePredictionStatus `json:"status,omitzero"`
}

// ClusterNodePredictionSpec configures the nodes and the metrics to forecast.
type ClusterNodePredictionSpec struct {
	// NodeSelector are the required labels of a node. Absent or empty means all nodes in Crane's own namespace and no node in
	// other namespaces, where an object forecasts at most 20 nodes, the first by name, because it would otherwise create as many
	// objects as the cluster has nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Template is the TimeSeriesPrediction to create for each node. Without it none is created.
	// +optional
	Template *TimeSeriesPredictionTemplate `json:"template,omitempty"`
}

// TimeSeriesPredictionTemplate is the template of a TimeSeriesPrediction.
type TimeSeriesPredictionTemplate struct {
	// Metadata of the objects. It is pruned: the controller sets names and labels.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec of the objects; targetRef is set to the node.
	Spec TimeSeriesPredictionSpec `json:"spec"`
}

// ClusterNodePredictionStatus counts the created objects.
type ClusterNodePredictionStatus struct {
	// DesiredNumberCreated is the number of nodes that match.
	// +optional
	DesiredNumberCreated int `json:"desiredNumberCreated,omitempty"`

	// CurrentNumberCreated is the number of nodes that have their TimeSeriesPrediction.
	// +optional
	CurrentNumberCreated int `json:"currentNumberCreated,omitempty"`

	// Conditions report whether every node has a TimeSeriesPrediction.
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
