// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Analytics is the older, namespaced form of RecommendationRule, kept for objects of gocrane. The controller makes a
// RecommendationRule of it. New configurations use RecommendationRule.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=analytics,singular=analytics,shortName=analytics
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.completionStrategy.completionStrategyType`
// +kubebuilder:printcolumn:name="PeriodSeconds",type=string,JSONPath=`.spec.completionStrategy.periodSeconds`
type Analytics struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is analysed, how and how often.
	Spec AnalyticsSpec `json:"spec"`
	// Status says how far the analysis has come, written by the controller.
	// +optional
	Status AnalyticsStatus `json:"status,omitzero"`
}

// AnalyticsSpec says what is analysed, how and how often.
type AnalyticsSpec struct {
	// Type is the recommender's name, such as Resource or Replicas.
	Type AnalysisType `json:"type"`

	// ResourceSelectors choose the objects to analyse, in the namespace of the Analytics, or in all namespaces where
	// it lies in Crane's own. At most 100.
	// +kubebuilder:validation:MaxItems=100
	ResourceSelectors []ResourceSelector `json:"resourceSelectors"`

	// CompletionStrategy says whether the analysis is repeated. Absent means once.
	// +optional
	CompletionStrategy *CompletionStrategy `json:"completionStrategy,omitempty"`

	// Config overrides settings of the recommender, key by key. All values are strings, numbers too.
	// +optional
	Config map[string]string `json:"config,omitempty"`
}

// AnalyticsStatus says how far an analysis has come.
type AnalyticsStatus struct {
	// LastUpdateTime is when the status was last written.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`

	// Conditions say whether the analysis could be set up and why not. Types: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Recommendations are the missions of the analysis, one for each target.
	// +optional
	// +listType=atomic
	Recommendations []RecommendationMission `json:"recommendations,omitempty"`
}

// AnalyticsList is a list of Analytics.
//
// +kubebuilder:object:root=true
type AnalyticsList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the Analytics of the list.
	Items []Analytics `json:"items"`
}

// ConfigSet overrides the settings of recommenders for chosen targets. The entry whose target says most (namespace,
// kind, name) wins. Kept for objects of gocrane; new configurations set config in a RecommendationRule.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=cs
type ConfigSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Configs are the overrides.
	// +optional
	Configs []Config `json:"configs,omitempty"`
}

// Config is one override of a ConfigSet.
type Config struct {
	// Targets are what the properties apply to. Empty means everything.
	// +optional
	Targets []Target `json:"targets,omitempty"`

	// Properties are settings of recommenders, such as resource.cpu-request-percentile: "0.98". All values are
	// strings, numbers too.
	// +optional
	Properties map[string]string `json:"properties,omitempty"`
}

// Target chooses objects. An empty field matches all.
type Target struct {
	// Namespace of the objects.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Kind of the objects, such as Deployment.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// Name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// ConfigSetList is a list of ConfigSets.
//
// +kubebuilder:object:root=true
type ConfigSetList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the ConfigSets of the list.
	Items []ConfigSet `json:"items"`
}
