// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

// ProposedRecommendation is the YAML document in status.recommendedValue of a Recommendation. One of its fields is set,
// by the type of the Recommendation. The annotation of the target holds the document in that field.
type ProposedRecommendation struct {
	// EffectiveHPA is set for the type HPA.
	EffectiveHPA *EffectiveHPARecommendation `json:"effectiveHPA,omitempty"`
	// ReplicasRecommendation is set for the type Replicas.
	ReplicasRecommendation *ReplicasRecommendation `json:"replicasRecommendation,omitempty"`
	// ResourceRequest is set for the type Resource.
	ResourceRequest *ResourceRequestRecommendation `json:"resourceRequest,omitempty"`
}

// EffectiveHPARecommendation is the recommended autoscaler of a workload.
type EffectiveHPARecommendation struct {
	// MinReplicas and MaxReplicas are the bounds of the number of replicas.
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// Metrics are the metrics of the autoscaler, with their targets.
	Metrics []autoscalingv2.MetricSpec `json:"metrics,omitempty"`
	// Prediction is set if the load can be forecast.
	Prediction *autoscalingv1alpha1.Prediction `json:"prediction,omitempty"`
}

// ReplicasRecommendation is a recommended number of replicas.
type ReplicasRecommendation struct {
	// Replicas is the number, from 0 up.
	Replicas *int32 `json:"replicas,omitempty"`
}

// ResourceRequestRecommendation is the recommended requests of a workload.
type ResourceRequestRecommendation struct {
	// Containers are the recommendations for each container, in the order of the pod template.
	Containers []ContainerRecommendation `json:"containers,omitempty"`
}

// ContainerRecommendation is the recommended requests of one container.
type ContainerRecommendation struct {
	// ContainerName is the name of the container.
	ContainerName string `json:"containerName,omitempty"`
	// Target holds a quantity for each resource.
	Target ResourceValues `json:"target,omitempty"`
}

// ResourceValues holds quantities in their written form, such as "250m" or "512Mi".
type ResourceValues map[corev1.ResourceName]string
