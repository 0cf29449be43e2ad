// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScopeName is the property of a pod that a scope compares.
//
// +kubebuilder:validation:Enum=QOSClass;Priority;Namespace
type ScopeName string

// The scopes.
const (
	// ScopeQOSClass compares the QoS class: Guaranteed, Burstable or BestEffort.
	ScopeQOSClass ScopeName = "QOSClass"
	// ScopePriority compares the priority with a number such as 1000 or a range such as 1000-3000.
	ScopePriority ScopeName = "Priority"
	// ScopeNamespace compares the namespace.
	ScopeNamespace ScopeName = "Namespace"
)

// ScopeOperator is a comparison.
//
// +kubebuilder:validation:Enum=In;NotIn
type ScopeOperator string

// The scope operators.
const (
	// ScopeOperatorIn selects pods with one of the values.
	ScopeOperatorIn ScopeOperator = "In"
	// ScopeOperatorNotIn selects pods with none of the values.
	ScopeOperatorNotIn ScopeOperator = "NotIn"
)

// PodQOS configures the actions that may be applied to pods, and the quality of service of these pods. An action is applied
// to a pod only if a PodQOS matches the pod and allows the action.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=podqoss,singular=podqos,scope=Cluster,shortName=pq
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.allowedActions[0]`,description="The first allowed action."
// +kubebuilder:printcolumn:name="CPUPriority",type=integer,JSONPath=`.spec.resourceQOS.cpuQOS.cpuPriority`,description="The CPU priority of the pods."
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type PodQOS struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec selects the pods and configures their quality of service.
	Spec PodQOSSpec `json:"spec"`
	// Status is kept for objects of gocrane. Crane does not write it.
	// +optional
	Status PodQOSStatus `json:"status,omitzero"`
}

// PodQOSSpec selects the pods and configures their quality of service.
type PodQOSSpec struct {
	// AllowedActions are the names of the AvoidanceActions that may be applied to the pods.
	// +optional
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	AllowedActions []string `json:"allowedActions,omitempty"`

	// LabelSelector is matched against the labels of pods. With neither labelSelector nor scopeSelector no pod matches.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",fieldPath=".matchExpressions",message="In and NotIn need values, Exists and DoesNotExist have none, and there is no other operator"
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`

	// ScopeSelector is matched against other properties of pods. Where both selectors are given, both have to match.
	// +optional
	ScopeSelector *ScopeSelector `json:"scopeSelector,omitempty"`

	// PodQualityProbe is the source of metrics of the pods. It has no effect, as in gocrane.
	// +optional
	PodQualityProbe *PodQualityProbe `json:"podQualityProbe,omitempty"`

	// ResourceQOS is the quality of service of the pods, by resource.
	// +optional
	ResourceQOS *ResourceQOS `json:"resourceQOS,omitempty"`
}

// ScopeSelector selects pods by properties other than labels.
type ScopeSelector struct {
	// MatchExpressions are the conditions, all of which must be met. An empty list matches every pod. At most 50.
	// +optional
	// +kubebuilder:validation:MaxItems=50
	MatchExpressions []ScopeSelectorRequirement `json:"matchExpressions,omitempty"`
}

// ScopeSelectorRequirement is a condition on one property of a pod.
//
// +kubebuilder:validation:XValidation:rule="has(self.values) && size(self.values) > 0",fieldPath=".values",reason="FieldValueRequired",message="In and NotIn need values"
// +kubebuilder:validation:XValidation:rule="self.scopeName != 'QOSClass' || !has(self.values) || self.values.all(v, v in ['Guaranteed', 'Burstable', 'BestEffort'])",fieldPath=".values",message="a QoS class is Guaranteed, Burstable or BestEffort"
// +kubebuilder:validation:XValidation:rule="self.scopeName != 'Priority' || !has(self.values) || self.values.all(v, v.matches('^-?[0-9]{1,10}(--?[0-9]{1,10})?$'))",fieldPath=".values",message="a priority is a whole number such as -100 or a range such as 1000-3000"
type ScopeSelectorRequirement struct {
	// ScopeName is the property: QOSClass, Priority or Namespace.
	ScopeName ScopeName `json:"scopeName"`

	// Operator is In or NotIn.
	Operator ScopeOperator `json:"operator"`

	// Values are the values to compare with, from 1 to 100: QoS classes; priorities such as -100 or 1000, or inclusive
	// ranges such as 1000-3000; names of namespaces.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`
}

// PodQualityProbe is the source of metrics of pods.
type PodQualityProbe struct {
	// HTTPGet reads metrics from an HTTP endpoint of the pod.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.scheme) || self.scheme in ['HTTP', 'HTTPS']",fieldPath=".scheme",message="must be HTTP or HTTPS"
	HTTPGet *corev1.HTTPGetAction `json:"httpGet,omitempty"`

	// TimeoutSeconds is the timeout of a request in seconds, from 0 up; 0 means none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// PodQOSStatus is kept for objects of gocrane. Crane does not write it.
type PodQOSStatus struct {
	// Conditions are kept for objects of gocrane. Crane does not write them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PodQOSList is a list of PodQOSs.
//
// +kubebuilder:object:root=true
type PodQOSList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the PodQOSs of the list.
	Items []PodQOS `json:"items"`
}
