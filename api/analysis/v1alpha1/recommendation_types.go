// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnalysisType is the name of a recommender.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
type AnalysisType string

// The built-in analysis types.
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
	// AnalysisTypeService finds load balancers without a pod behind them.
	AnalysisTypeService AnalysisType = "Service"
	// AnalysisTypeUnused finds running workloads without use.
	AnalysisTypeUnused AnalysisType = "Unused"
	// AnalysisTypePacking finds workloads of which one more pod fits on no node.
	AnalysisTypePacking AnalysisType = "Packing"
	// AnalysisTypeThrottle finds CPU limits that throttle their containers.
	AnalysisTypeThrottle AnalysisType = "Throttle"
	// AnalysisTypeGPU finds GPUs that are allocated to containers and idle.
	AnalysisTypeGPU AnalysisType = "GPU"
)

// CompletionStrategyType is the repetition of an analysis.
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

// AdoptionType is where a recommended value is written.
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

// Action is the change of the target that a recommendation proposes.
type Action string

// The actions.
const (
	// ActionPatch changes the target by the merge patch in recommendedInfo.
	ActionPatch Action = "Patch"
	// ActionCreate creates the object in recommendedInfo.
	ActionCreate Action = "Create"
	// ActionDelete deletes the target.
	ActionDelete Action = "Delete"
	// ActionNone changes nothing, because the target already has the recommended value.
	ActionNone Action = "None"
)

// Recommendation holds the recommendation for one target: a workload, node, volume or service. The controller creates
// one for each target and recommender of a RecommendationRule.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=recommend
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="Change",type=string,JSONPath=`.status.change`
// +kubebuilder:printcolumn:name="Saving/Month",type=string,JSONPath=`.status.savings.monthly`,description="What the change saves in 730 hours with all pods, in the currency of the next column; negative if it costs more."
// +kubebuilder:printcolumn:name="Currency",type=string,JSONPath=`.status.savings.currency`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Type",type=string,priority=1,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="TargetKind",type=string,priority=1,JSONPath=`.spec.targetRef.kind`
// +kubebuilder:printcolumn:name="TargetNamespace",type=string,priority=1,JSONPath=`.spec.targetRef.namespace`
// +kubebuilder:printcolumn:name="Action",type=string,priority=1,JSONPath=`.status.action`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="AdoptionType",type=string,priority=1,JSONPath=`.spec.adoptionType`
// +kubebuilder:printcolumn:name="Adoption",type=string,priority=1,JSONPath=`.status.adoption.phase`
// +kubebuilder:printcolumn:name="Strategy",type=string,priority=1,JSONPath=`.spec.completionStrategy.completionStrategyType`
// +kubebuilder:printcolumn:name="PeriodSeconds",type=string,priority=1,JSONPath=`.spec.completionStrategy.periodSeconds`
type Recommendation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec configures the target of the recommendation and its adoption.
	Spec RecommendationSpec `json:"spec"`
	// Status holds the recommended values, written by the controller.
	// +optional
	Status RecommendationStatus `json:"status,omitzero"`
}

// RecommendationSpec configures the target of a recommendation and its adoption.
type RecommendationSpec struct {
	// TargetRef is the target of the recommendation. Kind and name are required; namespace is empty for a
	// cluster-scoped target. The other fields are informative.
	// +kubebuilder:validation:XValidation:rule="has(self.kind) && size(self.kind) > 0",fieldPath=".kind",reason="FieldValueRequired",message="the kind of the target is required"
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0",fieldPath=".name",reason="FieldValueRequired",message="the name of the target is required"
	// +kubebuilder:validation:XValidation:rule="(!has(self.kind) || size(self.kind) <= 253) && (!has(self.name) || size(self.name) <= 253) && (!has(self.namespace) || size(self.namespace) <= 253) && (!has(self.apiVersion) || size(self.apiVersion) <= 317)",message="kind, name and namespace have at most 253 characters, apiVersion 317"
	// +kubebuilder:validation:XValidation:rule="(!has(self.name) || self.name == '' || self.name.matches('^[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?$'))",fieldPath=".name",message="a name has letters, digits and the characters . _ : -"
	// +kubebuilder:validation:XValidation:rule="(!has(self.kind) || self.kind.matches('^[A-Za-z0-9-]*$')) && (!has(self.apiVersion) || self.apiVersion.matches('^[A-Za-z0-9./-]*$'))",message="kind and apiVersion have the characters that Kubernetes allows in them"
	TargetRef corev1.ObjectReference `json:"targetRef"`

	// Type is the recommender's name: Resource, Replicas, HPA, IdleNode, Volume, Service, or a custom recommender.
	Type AnalysisType `json:"type"`

	// CompletionStrategy is shown by kubectl get and kept for objects of gocrane. It has no effect: the interval of the
	// RecommendationRule determines the repetition.
	// +optional
	CompletionStrategy *CompletionStrategy `json:"completionStrategy,omitempty"`

	// AdoptionType is where the value is written: Status (the status of this object only), StatusAndAnnotation
	// (also an annotation of the target), or Auto (also applied to the target). Defaults to StatusAndAnnotation.
	// +optional
	// +kubebuilder:default=StatusAndAnnotation
	AdoptionType AdoptionType `json:"adoptionType,omitempty"`

	// Adoption configures how a value of type Resource is applied to pods where adoptionType is Auto. Absent means in place.
	// +optional
	Adoption *AdoptionSpec `json:"adoption,omitempty"`
}

// AdoptionReach selects the pods to which a value is applied, and the method.
//
// +kubebuilder:validation:Enum=InPlace;NewPods;Recreate;InPlaceOrRecreate
type AdoptionReach string

// The reaches. With each of them the pod webhook applies the value to new pods.
const (
	// AdoptionReachInPlace resizes running pods in place.
	AdoptionReachInPlace AdoptionReach = "InPlace"
	// AdoptionReachNewPods does not change running pods.
	AdoptionReachNewPods AdoptionReach = "NewPods"
	// AdoptionReachRecreate evicts running pods, whose controllers replace them.
	AdoptionReachRecreate AdoptionReach = "Recreate"
	// AdoptionReachInPlaceOrRecreate resizes in place, and evicts pods that cannot be resized in place.
	AdoptionReachInPlaceOrRecreate AdoptionReach = "InPlaceOrRecreate"
)

// AdoptionSpec configures how a value is applied to pods.
type AdoptionSpec struct {
	// Reach is InPlace, NewPods (as they are created), Recreate (by eviction, within disruption budgets) or InPlaceOrRecreate.
	// Defaults to InPlace.
	// +optional
	// +kubebuilder:default=InPlace
	Reach AdoptionReach `json:"reach,omitempty"`

	// MinReplicas is the minimum number of running pods of the target for a pod to be changed, from 1 up. Absent means 2 for an
	// eviction and 1 for a resize in place.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinReplicas *int32 `json:"minReplicas,omitempty"`
}

// CompletionStrategy configures the repetition of an analysis.
type CompletionStrategy struct {
	// CompletionStrategyType is Once or Periodical. Defaults to Once.
	// +optional
	// +kubebuilder:default=Once
	CompletionStrategyType CompletionStrategyType `json:"completionStrategyType,omitempty"`

	// PeriodSeconds is the interval between two analyses in seconds, from 0 up. Only Periodical uses it; absent or 0
	// means 86400, a day. For an Analytics outside Crane's own namespace less than 600 counts as 600.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PeriodSeconds *int64 `json:"periodSeconds,omitempty"`
}

// RecommendationStatus is the result of the last analysis.
type RecommendationStatus struct {
	RecommendationContent `json:",inline"`

	// Conditions report whether the recommendation is ready. Types: Ready; Learning (too little history yet),
	// Failed (the value is that of an earlier analysis) and Adopted (False where the value could not be applied to the target).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Savings is the difference of the requests of all pods of the target, and its price in the price book. It is absent
	// for targets without a current request, without pods, and for jobs.
	// +optional
	Savings *Savings `json:"savings,omitempty"`

	// Evidence is the replay of the recommended CPU requests over the past days of the target, by container. Only the policy
	// calibrated has it.
	// +optional
	// +listType=map
	// +listMapKey=container
	// +kubebuilder:validation:MaxItems=32
	Evidence []CalibrationEvidence `json:"evidence,omitempty"`

	// Adoption reports the progress of adoption of a target whose adoptionType is Auto; absent before the first step.
	// +optional
	Adoption *AdoptionStatus `json:"adoption,omitempty"`

	// LastUpdateTime is the time of the last change of the status. An analysis with an equal result does not write it; the
	// time of the last analysis is in the status of the rule.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
}

// AdoptionStatus reports the progress of adoption.
type AdoptionStatus struct {
	// Phase is Resting (pods have the desired size), Lowering, Watching (the effect of the last step is observed), RollingBack,
	// Held (rolled back; requests are not lowered for a while), Withdrawing, or Stopped (another client has changed the target).
	// Empty before the first step.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Phase string `json:"phase,omitempty"`

	// Message describes the phase.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`

	// Steps is the number of times that requests were lowered, from 0 up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Steps int32 `json:"steps,omitempty"`

	// Remarks describe single pods, such as a pod whose node lacks the capacity for its new size.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Remarks []string `json:"remarks,omitempty"`

	// DryRun lists the next requests where adoption is a dry run. At most 20 are listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	DryRun []AdoptionPatch `json:"dryRun,omitempty"`
}

// AdoptionPatch is one request that adoption would send: a server-side apply.
type AdoptionPatch struct {
	// Object is the patched object as kind/name, followed by the subresource: pods/web-1/resize.
	// +kubebuilder:validation:MaxLength=512
	Object string `json:"object"`

	// Patch is the body of the request, as JSON.
	Patch string `json:"patch"`
}

// CalibrationEvidence is the time above the CPU request of one container in a replay of its past days, beside the target.
type CalibrationEvidence struct {
	// Container is the name of the container.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Container string `json:"container"`

	// Target is the share of the time that CPU usage may exceed the request, as a decimal number: 0.005 is 7.2 minutes a day.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?$`
	Target string `json:"target"`

	// Achieved is the share of the time above the request in the replay, as a decimal number.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?$`
	Achieved string `json:"achieved"`

	// Message compares both, in minutes a day, and states by how much a missed target is missed.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	// Days is the number of replayed days.
	// +kubebuilder:validation:Minimum=1
	Days int32 `json:"days"`

	// Plot is a table of the factors that were replayed: minutes a day above the request, and the mean request in cores.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Plot string `json:"plot,omitempty"`
}

// Savings is the price of a change of requests. Negative amounts are costs: the target should request more.
type Savings struct {
	// CPU is the reduction of the CPU request of all pods together, in cores.
	CPU resource.Quantity `json:"cpu"`

	// Memory is the reduction of the memory request of all pods together, in bytes.
	Memory resource.Quantity `json:"memory"`

	// Monthly is the price of both for a month of 730 hours, as a decimal number such as "12.34".
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^-?[0-9]+(\.[0-9]+)?$`
	Monthly string `json:"monthly"`

	// Currency is the currency of the price book.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	Currency string `json:"currency"`

	// PricedFrom is the source of the prices: the nodes on which the pods run, the mean of the cluster, or the default of
	// the price book.
	// +optional
	PricedFrom string `json:"pricedFrom,omitempty"`

	// NotCounted lists what the amounts exclude and the reason, for example a container without a current request.
	// +optional
	// +listType=atomic
	NotCounted []string `json:"notCounted,omitempty"`
}

// RecommendationContent is the recommended change of the target.
type RecommendationContent struct {
	// RecommendedValue is the recommendation as a YAML document: resourceRequest.containers[],
	// replicasRecommendation.replicas or effectiveHPA. The annotation of the target holds the inner document, for
	// example "replicas: 3". Deprecated by gocrane in favor of recommendedInfo, and still written.
	// +optional
	RecommendedValue string `json:"recommendedValue,omitempty"`

	// TargetRef is the object that recommendedInfo applies to. It is the target in the spec, or its autoscaler.
	// +optional
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`

	// RecommendedInfo is JSON for the action: a strategic merge patch of the target for Patch, an object for Create, empty
	// otherwise.
	// +optional
	RecommendedInfo string `json:"recommendedInfo,omitempty"`

	// CurrentInfo holds the current values of the fields that recommendedInfo changes, in the same form.
	// +optional
	CurrentInfo string `json:"currentInfo,omitempty"`

	// Action is the recommended action: Patch, Create, Delete or None.
	// +optional
	Action Action `json:"action,omitempty"`

	// Change is the recommended change in short, such as "cpu 1 → 778m, memory 1136Mi → 512Mi": requests of one pod, replicas,
	// or the action.
	// +optional
	// +kubebuilder:validation:MaxLength=60
	Change string `json:"change,omitempty"`

	// Description is the reason for the recommendation.
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
