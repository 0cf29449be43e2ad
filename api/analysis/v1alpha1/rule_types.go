// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RecommendationRule says which objects are analysed, by which recommenders and how often. Each pair of a selected
// object and a recommender gets a Recommendation, in the namespace of the object (in Crane's own namespace where the
// object has none).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=rr
// +kubebuilder:printcolumn:name="RunInterval",type=string,JSONPath=`.spec.runInterval`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Run",type=integer,priority=1,JSONPath=`.status.runNumber`
// +kubebuilder:printcolumn:name="LastRun",type=date,priority=1,JSONPath=`.status.lastUpdateTime`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type RecommendationRule struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is analysed, by which recommenders and how often.
	Spec RecommendationRuleSpec `json:"spec"`
	// Status says how far the rule has come, written by the controller.
	// +optional
	Status RecommendationRuleStatus `json:"status,omitzero"`
}

// RecommendationRuleSpec says what is analysed, by which recommenders and how often.
type RecommendationRuleSpec struct {
	// ResourceSelectors choose the objects to analyse. An object is chosen when one of the selectors matches; an
	// empty list chooses nothing. At most 100.
	// +kubebuilder:validation:MaxItems=100
	ResourceSelectors []ResourceSelector `json:"resourceSelectors"`

	// NamespaceSelector chooses the namespaces in which objects are looked for. Cluster-scoped kinds (Node,
	// PersistentVolume) are found only with any: true.
	NamespaceSelector NamespaceSelector `json:"namespaceSelector"`

	// RunInterval is the time between two rounds: a Go duration such as 30m or 24h, or days such as 7d or 1d12h; more
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

// ResourceSelector chooses objects of one kind.
type ResourceSelector struct {
	// Kind of the objects, such as Deployment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// APIVersion of the objects, such as apps/v1. Empty means any group and version that serves the kind.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`

	// Name of the one object that is meant. Empty means any name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// LabelSelector is matched against the labels of the objects. Absent or empty matches all.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// NamespaceSelector chooses namespaces.
type NamespaceSelector struct {
	// Any chooses all namespaces; matchNames is then ignored. Defaults to false.
	// +optional
	Any bool `json:"any,omitempty"`

	// MatchNames are the names of the chosen namespaces. There are no patterns. Without any: true, an empty list
	// chooses nothing.
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

// RecommendationRuleStatus says how far a rule has come.
type RecommendationRuleStatus struct {
	// LastUpdateTime is when the last round was completed.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`

	// Recommendations were the missions of a round. No longer written: the annotations of the Recommendations say it.
	// +optional
	// +listType=atomic
	Recommendations []RecommendationMission `json:"recommendations,omitempty"`

	// RunNumber is the number of the last completed round, from 1 up.
	// +optional
	RunNumber int32 `json:"runNumber,omitempty"`

	// Conditions say whether the last round succeeded and why not. Types: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RecommendationMission is one analysis of one target. Its inline fields refer to the Recommendation.
type RecommendationMission struct {
	corev1.ObjectReference `json:",inline"`

	// TargetRef is the object that is analysed.
	// +optional
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`

	// LastStartTime is when the mission last began.
	// +optional
	LastStartTime *metav1.Time `json:"lastStartTime,omitempty"`

	// Message says how the mission ended.
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
