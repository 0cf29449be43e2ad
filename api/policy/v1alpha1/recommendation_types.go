// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// RecommendationConfiguration configures the recommenders, the objects that each accepts and its settings. A
// RecommendationRule can only name recommenders of this configuration.
//
// +kubebuilder:object:root=true
type RecommendationConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Recommenders are the recommenders, with unique names.
	Recommenders []RecommenderConfiguration `json:"recommenders"`

	// RecommenderPlugins have no effect, as in gocrane.
	RecommenderPlugins []runtime.RawExtension `json:"recommenderPlugins,omitempty"`
}

// RecommenderConfiguration configures one recommender.
type RecommenderConfiguration struct {
	// Name of the recommender, such as Resource.
	Name string `json:"name"`

	// AcceptedResources are the objects that the recommender accepts. An empty list accepts nothing.
	AcceptedResources []analysisv1alpha1.ResourceSelector `json:"acceptedResources"`

	// Config holds the settings. All values are strings, numbers too. A rule overrides them key by key.
	Config map[string]string `json:"config,omitempty"`
}
