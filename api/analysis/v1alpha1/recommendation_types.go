// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnalysisType names what is recommended; it is the name of a recommender.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
type AnalysisType string

// The analysis types that Crane knows.
const (
	// AnalysisTypeResource recommends the resource requests of each container.
	AnalysisTypeResource AnalysisType = "Resource"
	// AnalysisTypeReplicas recommends a number of replicas.
	AnalysisTypeReplicas AnalysisType = "Replicas"
	// AnalysisTypeHPA recommends a horizontal autoscaler.
	AnalysisTypeHPA AnalysisType = "HPA"
	// AnalysisTypeIdleNode finds nodes that could be removed.
	AnalysisTypeIdleNode AnalysisType = "IdleNode"
	// AnalysisTypeVolume finds persistent volumes that no pod uses.
	AnalysisTypeVolume AnalysisType = "Volume"
	// AnalysisTypeService finds load balancers that no pod stands behind.
	AnalysisTypeService AnalysisType = "Service"
	// AnalysisTypeUnused finds workloads that run and that nobody uses.
	AnalysisTypeUnused AnalysisType = "Unused"
	// AnalysisTypePacking finds workloads of which one more pod fits on no node.
	AnalysisTypePacking AnalysisType = "Packing"
	// AnalysisTypeThrottle finds CPU limits that hold their containers up.
	AnalysisTypeThrottle AnalysisType = "Throttle"
	// AnalysisTypeGPU finds GPUs that containers hold and do not use.
	AnalysisTypeGPU AnalysisType = "GPU"
)

// CompletionStrategyType says whether an analysis is repeated.
//
// +kubebuilder:validation:Enum=Once;Periodical
type CompletionStrategyType string

// The completion strategies.
const (
	// CompletionStrategyOnce analyses once.
	CompletionStrategyOnce CompletionStrategyType = "Once"
	// CompletionStrategyPeriodical analyses every periodSeconds.
	CompletionStrategyPeriodical CompletionStrategyType = "Periodical"
)

// AdoptionType says where a recommended value is written.
//
// +kubebuilder:validation:Enum=Status;StatusAndAnnotation;Auto
type AdoptionType string

// The adoption types.
const (
	// AdoptionTypeStatus writes the value to the status of the Recommendation only.
	AdoptionTypeStatus AdoptionType = "Status"
	// AdoptionTypeStatusAndAnnotation writes it to the status and to an annotation of the target.
	AdoptionTypeStatusAndAnnotation AdoptionType = "StatusAndAnnotation"
	// AdoptionTypeAuto writes it to both and lets Crane apply it.
	AdoptionTypeAuto AdoptionType = "Auto"
)

// Action is what a recommendation proposes to do with its target.
type Action string

// The actions.
const (
	// ActionPatch changes the target by the merge patch in recommendedInfo.
	ActionPatch Action = "Patch"
	// ActionCreate creates the object in recommendedInfo.
	ActionCreate Action = "Create"
	// ActionDelete deletes the target.
	ActionDelete Action = "Delete"
	// ActionNone changes nothing: the target is as recommended already.
	ActionNone Action = "None"
)

// Recommendation is what Crane recommends for one target: one workload, node, volume or service. The controller makes
// one for each target and recommender of a RecommendationRule.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=recommend
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="TargetKind",type=string,JSONPath=`.spec.targetRef.kind`
// +kubebuilder:printcolumn:name="TargetNamespace",type=string,JSONPath=`.spec.targetRef.namespace`
// +kubebuilder:printcolumn:name="TargetName",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.completionStrategy.completionStrategyType`
// +kubebuilder:printcolumn:name="PeriodSeconds",type=string,JSONPath=`.spec.completionStrategy.periodSeconds`
// +kubebuilder:printcolumn:name="AdoptionType",type=string,JSONPath=`.spec.adoptionType`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Action",type=string,priority=1,JSONPath=`.status.action`
// +kubebuilder:printcolumn:name="Savings",type=string,priority=1,JSONPath=`.status.savings.monthly`
// +kubebuilder:printcolumn:name="Description",type=string,priority=1,JSONPath=`.status.description`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type Recommendation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what the recommendation is for and how it is used.
	Spec RecommendationSpec `json:"spec"`
	// Status holds the recommended values, written by the controller.
	// +optional
	Status RecommendationStatus `json:"status,omitzero"`
}

// RecommendationSpec says what a recommendation is for and how it is used.
type RecommendationSpec struct {
	// TargetRef is the object that the recommendation is for. Kind and name are needed; namespace is empty for a
	// cluster-scoped target. The other fields are informative.
	// +kubebuilder:validation:XValidation:rule="has(self.kind) && size(self.kind) > 0",fieldPath=".kind",reason="FieldValueRequired",message="the kind of the target is required"
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0",fieldPath=".name",reason="FieldValueRequired",message="the name of the target is required"
	TargetRef corev1.ObjectReference `json:"targetRef"`

	// Type is the recommender's name: Resource, Replicas, HPA, IdleNode, Volume, Service, or one of your own.
	Type AnalysisType `json:"type"`

	// CompletionStrategy says whether the analysis is repeated. The interval of the RecommendationRule decides; this
	// field is kept for objects of gocrane and shown by kubectl get.
	// +optional
	CompletionStrategy *CompletionStrategy `json:"completionStrategy,omitempty"`

	// AdoptionType says where the value is written: Status (the status of this object only), StatusAndAnnotation
	// (also an annotation of the target), or Auto (also applied to the target). Defaults to StatusAndAnnotation.
	// +optional
	// +kubebuilder:default=StatusAndAnnotation
	AdoptionType AdoptionType `json:"adoptionType,omitempty"`

	// Adoption says how a value of type Resource reaches pods where adoptionType is Auto. Absent means in place.
	// +optional
	Adoption *AdoptionSpec `json:"adoption,omitempty"`
}

// AdoptionReach says which pods get a value, and how.
//
// +kubebuilder:validation:Enum=InPlace;NewPods;Recreate;InPlaceOrRecreate
type AdoptionReach string

// The reaches. New pods get the value from the pod webhook in all of them.
const (
	// AdoptionReachInPlace resizes running pods in place.
	AdoptionReachInPlace AdoptionReach = "InPlace"
	// AdoptionReachNewPods touches no running pod.
	AdoptionReachNewPods AdoptionReach = "NewPods"
	// AdoptionReachRecreate evicts running pods, so that others take their place.
	AdoptionReachRecreate AdoptionReach = "Recreate"
	// AdoptionReachInPlaceOrRecreate resizes in place, and evicts a pod whose size can never be changed so.
	AdoptionReachInPlaceOrRecreate AdoptionReach = "InPlaceOrRecreate"
)

// AdoptionSpec says how a value reaches pods.
type AdoptionSpec struct {
	// Reach is InPlace, NewPods (as they are created), Recreate (by eviction, within disruption budgets) or InPlaceOrRecreate.
	// Defaults to InPlace.
	// +optional
	// +kubebuilder:default=InPlace
	Reach AdoptionReach `json:"reach,omitempty"`

	// MinReplicas is the number of running pods that the target needs before one is touched, from 1 up. Absent means 2 for an
	// eviction and 1 for a resize in place.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinReplicas *int32 `json:"minReplicas,omitempty"`
}

// CompletionStrategy says whether an analysis is repeated, and how often.
type CompletionStrategy struct {
	// CompletionStrategyType is Once or Periodical. Defaults to Once.
	// +optional
	// +kubebuilder:default=Once
	CompletionStrategyType CompletionStrategyType `json:"completionStrategyType,omitempty"`

	// PeriodSeconds is the time between two analyses in seconds, from 0 up. Only Periodical uses it; absent or 0
	// means 86400, a day.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PeriodSeconds *int64 `json:"periodSeconds,omitempty"`
}

// RecommendationStatus is the outcome of the last analysis.
type RecommendationStatus struct {
	RecommendationContent `json:",inline"`

	// Conditions say whether the recommendation is ready and why not. Types: Ready; Learning (too little history yet),
	// Failed (the value is that of an earlier analysis) and Adopted (False where the target could not be given its value).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Savings is what the recommended change is worth over all pods of the target, at the prices of the price book. It is
	// absent where nothing can be counted: no request today, no pods, a job.
	// +optional
	Savings *Savings `json:"savings,omitempty"`

	// Adoption says how far the value was brought to a target whose adoptionType is Auto; absent where nothing was.
	// +optional
	Adoption *AdoptionStatus `json:"adoption,omitempty"`

	// LastUpdateTime is when what is said here last changed. Analyses that come to the same are not written; the time of the
	// last one is in the status of the rule.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
}

// AdoptionStatus says how far a value was brought to its target.
type AdoptionStatus struct {
	// Phase is Resting (pods have what they shall have), Lowering, Watching (the last step is watched), RollingBack, Held (rolled
	// back; nothing is lowered for a while), Withdrawing, or Stopped (somebody else has changed the target). Empty where nothing
	// has been done yet.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Phase string `json:"phase,omitempty"`

	// Message says in words how it stands.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`

	// Steps is how often something was lowered, from 0 up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Steps int32 `json:"steps,omitempty"`

	// Remarks are about single pods, such as one whose node has no room for its new size.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Remarks []string `json:"remarks,omitempty"`

	// DryRun lists what would be sent next, where adoption only says what it would do. At most 20 are listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	DryRun []AdoptionPatch `json:"dryRun,omitempty"`
}

// AdoptionPatch is one request that adoption would send: a server-side apply.
type AdoptionPatch struct {
	// Object is what is patched, as kind/name, with the subresource behind it: pods/web-1/resize.
	// +kubebuilder:validation:MaxLength=512
	Object string `json:"object"`

	// Patch is the body of the request, as JSON.
	Patch string `json:"patch"`
}

// Savings is what a change of requests is worth. Amounts below zero are costs: the target should request more.
type Savings struct {
	// CPU is how much less CPU all pods together request.
	CPU resource.Quantity `json:"cpu"`

	// Memory is how much less memory all pods together request.
	Memory resource.Quantity `json:"memory"`

	// Monthly is the price of both for a month of 730 hours, as a decimal number such as "12.34".
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^-?[0-9]+(\.[0-9]+)?$`
	Monthly string `json:"monthly"`

	// Currency is that of the price book.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	Currency string `json:"currency"`

	// PricedFrom says which prices were taken: of the nodes on which the pods run, the mean of the cluster, or the default
	// of the price book.
	// +optional
	PricedFrom string `json:"pricedFrom,omitempty"`

	// NotCounted says what is left out and why, for example a container without a request today.
	// +optional
	// +listType=atomic
	NotCounted []string `json:"notCounted,omitempty"`
}

// RecommendationContent is the recommended change of the target.
type RecommendationContent struct {
	// RecommendedValue is the recommendation as a YAML document, as it stands in the annotation of the target:
	// resourceRequest.containers[] or replicasRecommendation.replicas. Deprecated by gocrane in favour of
	// recommendedInfo, and still written.
	// +optional
	RecommendedValue string `json:"recommendedValue,omitempty"`

	// TargetRef is the object that recommendedInfo applies to. It is the spec's target, or the autoscaler of it.
	// +optional
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`

	// RecommendedInfo is what action needs, as JSON: a strategic merge patch of the target for Patch, a whole object
	// for Create, empty otherwise.
	// +optional
	RecommendedInfo string `json:"recommendedInfo,omitempty"`

	// CurrentInfo holds the present values of the fields that recommendedInfo changes, in the same form.
	// +optional
	CurrentInfo string `json:"currentInfo,omitempty"`

	// Action is what is recommended: Patch, Create, Delete or None.
	// +optional
	Action Action `json:"action,omitempty"`

	// Description says in words why.
	// +optional
	Description string `json:"description,omitempty"`
}

// RecommendationList is a list of Recommendations.
//
// +kubebuilder:object:root=true
type RecommendationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the Recommendations of the list.
	Items []Recommendation `json:"items"`
}
