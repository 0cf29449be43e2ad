// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RecommendationRule configures the objects to analyze, the recommenders and the interval. Each pair of a selected object
// and a recommender has a Recommendation in the namespace of the object (in Crane's own namespace for cluster-scoped
// objects).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=rr
// +kubebuilder:printcolumn:name="RunInterval",type=string,JSONPath=`.spec.runInterval`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Targets",type=integer,JSONPath=`.status.targets`
// +kubebuilder:printcolumn:name="LastRun",type=date,JSONPath=`.status.lastUpdateTime`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Run",type=integer,priority=1,JSONPath=`.status.runNumber`
type RecommendationRule struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec configures the objects to analyze, the recommenders and the interval.
	Spec RecommendationRuleSpec `json:"spec"`
	// Status reports the last round. The controller writes it.
	// +optional
	Status RecommendationRuleStatus `json:"status,omitzero"`
}

// RecommendationRuleSpec configures the objects to analyze, the recommenders and the interval.
type RecommendationRuleSpec struct {
	// ResourceSelectors select the objects to analyze. An object is selected if one of them matches; an empty list selects
	// no object. At most 100.
	// +kubebuilder:validation:MaxItems=100
	ResourceSelectors []ResourceSelector `json:"resourceSelectors"`

	// NamespaceSelector selects the namespaces of the objects. Cluster-scoped kinds (Node,
	// PersistentVolume) are selected only with any: true.
	NamespaceSelector NamespaceSelector `json:"namespaceSelector"`

	// RunInterval is the interval between two rounds: a Go duration such as 30m or 24h, or days such as 7d or 1d12h; more
	// than zero. Empty means one round.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.trim() == '' || self.matches('^([0-9]{1,5}d|[+])?(([0-9]{1,6}([.][0-9]*)?|[.][0-9]+)[hm]|([0-9]{1,9}([.][0-9]*)?|[.][0-9]+)s|([0-9]{1,12}([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms))*$')",message="must be a Go duration such as 30m or 24h, or days such as 7d"
	// +kubebuilder:validation:XValidation:rule="self.trim() == '' || self.matches('[1-9]')",message="must be more than zero"
	RunInterval string `json:"runInterval,omitempty"`

	// Recommenders are the recommenders to run, by their name in the recommendation configuration. At most 50.
	// +kubebuilder:validation:MaxItems=50
	Recommenders []Recommender `json:"recommenders"`
}

// ResourceSelector selects objects of one kind.
type ResourceSelector struct {
	// Kind of the objects, such as Deployment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// APIVersion of the objects, such as apps/v1. Empty means any group and version that serves the kind.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`

	// Name of the object. Empty means any name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// LabelSelector is matched against the labels of the objects. Absent or empty matches all.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// NamespaceSelector selects namespaces.
type NamespaceSelector struct {
	// Any selects all namespaces; matchNames is then ignored. Defaults to false.
	// +optional
	Any bool `json:"any,omitempty"`

	// MatchNames are the names of the selected namespaces, without patterns. Without any: true, an empty list selects no
	// namespace.
	// +optional
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	MatchNames []string `json:"matchNames,omitempty"`
}

// Recommender names a recommender and overrides its settings.
type Recommender struct {
	// Name of the recommender in the recommendation configuration, such as Resource.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Config overrides settings of the recommendation configuration, key by key. All values are strings, numbers too.
	// +optional
	Config map[string]string `json:"config,omitempty"`
}

// RecommendationRuleStatus reports the last round of a rule.
type RecommendationRuleStatus struct {
	// LastUpdateTime is the completion time of the last round.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`

	// Recommendations were the results of a round in older versions of gocrane. Crane does not write it: list the Recommendations by
	// the label analysis.crane.io/recommendation-rule-name instead.
	// +optional
	// +listType=atomic
	Recommendations []RecommendationMission `json:"recommendations,omitempty"`

	// RunNumber is the number of the last completed round, from 1 up.
	// +optional
	RunNumber int32 `json:"runNumber,omitempty"`

	// Targets is the number of targets that the last round evaluated, once for each recommender.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Targets *int32 `json:"targets,omitempty"`

	// Conditions report whether the last round succeeded. Types: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RecommendationMission is one analysis of one target. Its inline fields refer to the Recommendation.
type RecommendationMission struct {
	corev1.ObjectReference `json:",inline"`

	// TargetRef is the analyzed object.
	// +optional
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`

	// LastStartTime is the start time of the last analysis.
	// +optional
	LastStartTime *metav1.Time `json:"lastStartTime,omitempty"`

	// Message is the result of the last analysis.
	// +optional
	Message string `json:"message,omitempty"`

	// RecommenderRef is the recommender of the mission with its settings.
	// +optional
	RecommenderRef *Recommender `json:"recommenderRef,omitempty"`
}

// RecommendationRuleList is a list of RecommendationRules.
//
// +kubebuilder:object:root=true
type RecommendationRuleList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the RecommendationRules of the list.
	Items []RecommendationRule `json:"items"`
}
