// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MinAnalyticsPeriod is the least time between two analyses of an Analytics outside Crane's own namespace. Each reads all of the history, which changes
// little in this time.
const MinAnalyticsPeriod = 10 * time.Minute

// Analytics is the older, namespaced form of RecommendationRule, kept for objects of gocrane. The controller creates a
// RecommendationRule from it. New configurations use RecommendationRule.
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

	// Spec configures the analysis: its targets, recommender and interval.
	Spec AnalyticsSpec `json:"spec"`
	// Status reports the progress of the analysis. The controller writes it.
	// +optional
	Status AnalyticsStatus `json:"status,omitzero"`
}

// AnalyticsSpec configures the analysis: its targets, recommender and interval.
type AnalyticsSpec struct {
	// Type is the recommender's name, such as Resource or Replicas.
	Type AnalysisType `json:"type"`

	// ResourceSelectors select the objects to analyze, in the namespace of the Analytics; an Analytics in Crane's own namespace
	// covers all namespaces. At most 100.
	// +kubebuilder:validation:MaxItems=100
	ResourceSelectors []ResourceSelector `json:"resourceSelectors"`

	// CompletionStrategy defines whether the analysis is repeated. Defaults to one analysis.
	// +optional
	CompletionStrategy *CompletionStrategy `json:"completionStrategy,omitempty"`

	// Config overrides settings of the recommender by key, with or without gocrane's prefixes, such as
	// replicas.workload-min-replicas: "1". All values are strings. Keys that the recommender does not have are ignored and named
	// in the condition Ready.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 253 && size(self[key]) <= 1024)",message="a key has at most 253 characters, a value 1024"
	Config map[string]string `json:"config,omitempty"`
}

// AnalyticsStatus reports the progress of an analysis.
type AnalyticsStatus struct {
	// LastUpdateTime is the time of the last change of the status.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`

	// Conditions are the conditions of the analysis. Ready is that of its RecommendationRule.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Recommendations refer to the Recommendations of the analysis, one for each target, by namespace and name. At most 500.
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

// ConfigSet has no effect: it is stored for objects of gocrane, which stopped reading it. Set config in a RecommendationRule
// instead.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=cs
type ConfigSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Configs are settings by target, without effect.
	// +optional
	Configs []Config `json:"configs,omitempty"`
}

// Config is one entry of a ConfigSet.
type Config struct {
	// Targets are the objects of the entry, without effect.
	// +optional
	Targets []Target `json:"targets,omitempty"`

	// Properties are settings of recommenders, such as resource.cpu-request-percentile: "0.98", without effect.
	// +optional
	Properties map[string]string `json:"properties,omitempty"`
}

// Target selects objects. An empty field matches every value.
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
