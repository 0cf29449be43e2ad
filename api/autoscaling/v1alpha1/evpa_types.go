// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UpdateMode determines when new requests are applied to pods.
//
// +kubebuilder:validation:Enum=Off;Initial;Recreate;Auto;InPlace
type UpdateMode string

// The update modes.
const (
	// UpdateModeOff computes requests and applies none.
	UpdateModeOff UpdateMode = "Off"
	// UpdateModeInitial applies requests to pods when they are created.
	UpdateModeInitial UpdateMode = "Initial"
	// UpdateModeRecreate also replaces running pods, by evicting them.
	UpdateModeRecreate UpdateMode = "Recreate"
	// UpdateModeAuto applies requests in place, and by eviction only where the node can never fit the new size of a pod, or
	// where it would change the pod's QoS class.
	UpdateModeAuto UpdateMode = "Auto"
	// UpdateModeInPlace resizes running pods in place and evicts none. gocrane does not have this mode.
	UpdateModeInPlace UpdateMode = "InPlace"
)

// ScaleMode switches one direction of scaling.
//
// +kubebuilder:validation:Enum=Auto;Off
type ScaleMode string

// The scale modes.
const (
	// ScaleModeAuto scales in this direction.
	ScaleModeAuto ScaleMode = "Auto"
	// ScaleModeOff does not scale in this direction.
	ScaleModeOff ScaleMode = "Off"
)

// ControlledValues selects the resource values of a container that are set.
//
// +kubebuilder:validation:Enum=RequestsAndLimits;RequestsOnly
type ControlledValues string

// The controlled values.
const (
	// ControlledValuesRequestsAndLimits sets requests, and limits in the proportion that they have.
	ControlledValuesRequestsAndLimits ControlledValues = "RequestsAndLimits"
	// ControlledValuesRequestsOnly sets requests.
	ControlledValuesRequestsOnly ControlledValues = "RequestsOnly"
)

// DefaultContainer is the container name of a policy that holds for all containers without their own.
const DefaultContainer = "*"

// EffectiveVerticalPodAutoscaler keeps the requests of a workload's containers near what they need.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=evpa
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.updatePolicy.updateMode`
// +kubebuilder:printcolumn:name="Change",type=string,JSONPath=`.status.change`,description="The requests of one pod, present and recommended."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].reason`,description="The reason of the condition Applied."
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Applied",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
type EffectiveVerticalPodAutoscaler struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec configures the workload and the bounds of its requests.
	Spec EffectiveVerticalPodAutoscalerSpec `json:"spec"`
	// Status holds the recommended requests, written by the controller.
	// +optional
	Status EffectiveVerticalPodAutoscalerStatus `json:"status,omitzero"`
}

// EffectiveVerticalPodAutoscalerSpec configures the workload and the bounds of its requests.
type EffectiveVerticalPodAutoscalerSpec struct {
	// TargetRef is the workload, in the same namespace.
	// +kubebuilder:validation:XValidation:rule="size(self.kind) > 0",fieldPath=".kind",reason="FieldValueRequired",message="the kind of the target is required"
	// +kubebuilder:validation:XValidation:rule="size(self.name) > 0",fieldPath=".name",reason="FieldValueRequired",message="the name of the target is required"
	// +kubebuilder:validation:XValidation:rule="size(self.kind) <= 253 && size(self.name) <= 253 && (!has(self.apiVersion) || size(self.apiVersion) <= 317)",message="kind and name have at most 253 characters, apiVersion 317"
	// +kubebuilder:validation:XValidation:rule="self.name == '' || self.name.matches('^[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?$')",fieldPath=".name",message="a name has letters, digits and the characters . _ : -"
	// +kubebuilder:validation:XValidation:rule="self.kind.matches('^[A-Za-z0-9-]*$') && (!has(self.apiVersion) || self.apiVersion.matches('^[A-Za-z0-9./-]*$'))",message="kind and apiVersion have the characters that Kubernetes allows in them"
	TargetRef autoscalingv2.CrossVersionObjectReference `json:"targetRef"`

	// UpdatePolicy configures how requests are applied to pods. gocrane ignored it.
	// +optional
	UpdatePolicy *PodUpdatePolicy `json:"updatePolicy,omitempty"`

	// ResourcePolicy configures how the requests of each container are computed. Absent means the defaults for all.
	// +optional
	ResourcePolicy *PodResourcePolicy `json:"resourcePolicy,omitempty"`

	// ResourceEstimators are the estimators to use beside the built-in Percentile and OOM, or their settings. At most
	// 50.
	// +optional
	// +kubebuilder:validation:MaxItems=50
	ResourceEstimators []ResourceEstimator `json:"resourceEstimators,omitempty"`
}

// PodUpdatePolicy configures how requests are applied to pods.
type PodUpdatePolicy struct {
	// UpdateMode is Off (compute only), Initial (new pods), Recreate (also replace running pods), InPlace (also resize running
	// pods, and evict none) or Auto (in place, and by eviction where that is impossible). Absent means Off.
	// +optional
	UpdateMode *UpdateMode `json:"updateMode,omitempty"`

	// MinReplicas is the number of running pods that the workload needs before one is touched, from 1 up. Absent means 2 for an
	// eviction and 1 for a resize in place.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinReplicas *int32 `json:"minReplicas,omitempty"`
}

// PodResourcePolicy configures how the requests of each container are computed.
type PodResourcePolicy struct {
	// ContainerPolicies are the policies by container. At most 100.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=100
	ContainerPolicies []ContainerResourcePolicy `json:"containerPolicies,omitempty"`
}

// ContainerResourcePolicy configures how the requests of one container are computed.
type ContainerResourcePolicy struct {
	// ContainerName is the name of a container, or "*" for all containers that have no policy of their own.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName"`

	// ScaleUpPolicy configures when requests are raised.
	// +optional
	ScaleUpPolicy *ContainerScalingPolicy `json:"scaleUpPolicy,omitempty"`

	// ScaleDownPolicy configures when requests are lowered.
	// +optional
	ScaleDownPolicy *ContainerScalingPolicy `json:"scaleDownPolicy,omitempty"`

	// MinAllowed holds the least request by resource, at most maxAllowed. gocrane ignored it.
	// +optional
	MinAllowed ResourceBounds `json:"minAllowed,omitempty"`

	// MaxAllowed holds the largest request by resource. gocrane ignored it.
	// +optional
	MaxAllowed ResourceBounds `json:"maxAllowed,omitempty"`

	// ControlledResources are the resources that are set. Absent means cpu and memory. gocrane ignored it.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	ControlledResources []corev1.ResourceName `json:"controlledResources,omitempty"`

	// ControlledValues is RequestsAndLimits (limits keep their proportion) or RequestsOnly. Absent means RequestsAndLimits.
	// gocrane ignored it.
	// +optional
	ControlledValues *ControlledValues `json:"controlledValues,omitempty"`
}

// ResourceBounds holds a quantity by resource, for at most 16 resources. It converts to a corev1.ResourceList.
//
// +kubebuilder:validation:MaxProperties=16
type ResourceBounds map[corev1.ResourceName]resource.Quantity

// ContainerScalingPolicy configures when requests are changed in one direction.
type ContainerScalingPolicy struct {
	// ScaleMode is Auto or Off. Defaults to Auto.
	// +optional
	// +kubebuilder:default=Auto
	ScaleMode *ScaleMode `json:"mode,omitempty"`

	// MetricThresholds are by resource the threshold beyond which requests are changed: raised above it, lowered below it.
	// Absent means the defaults: 95 % up; down 35 % for cpu and 40 % for memory.
	// +optional
	MetricThresholds ResourceMetricThresholds `json:"metricThresholds,omitempty"`

	// StabilizationWindowSeconds is the least time between two changes in this direction, in seconds, from 0 up; for
	// lowering also the least time since requests were raised. Defaults to 3600 where the policy is given; without the policy it is 150 up and 43200 down.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=0
	StabilizationWindowSeconds *int32 `json:"stabilizationWindowSeconds,omitempty"`
}

// ResourceMetricThresholds are thresholds by resource.
type ResourceMetricThresholds map[corev1.ResourceName]MetricThreshold

// MetricThreshold is a threshold.
type MetricThreshold struct {
	// Utilization is the recommended request as a percentage of the present one, from 0 up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Utilization *int32 `json:"utilization,omitempty"`
}

// ResourceEstimator is an estimator of requests.
type ResourceEstimator struct {
	// Type is Percentile, OOM, Forecast (a TimeSeriesPrediction), External (an external metric), or the name of an external
	// estimator, which writes its results into status.currentEstimators.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type,omitempty"`

	// Priority orders estimators: the result of the highest priority applies; of equal priorities, the largest result.
	// +optional
	Priority int `json:"priority,omitempty"`

	// Config holds the settings of the estimator. All values are strings, including numbers.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 253 && size(self[key]) <= 1024)",message="a key has at most 253 characters, a value 1024"
	Config map[string]string `json:"config,omitempty"`
}

// EffectiveVerticalPodAutoscalerStatus holds the recommended requests.
type EffectiveVerticalPodAutoscalerStatus struct {
	// ResourceEstimators are the results of the estimators.
	// +optional
	ResourceEstimators []ResourceEstimatorStatus `json:"currentEstimators,omitempty"`

	// Recommendation is the combined result.
	// +optional
	Recommendation *RecommendedPodResources `json:"recommendation,omitempty"`

	// Change compares the present and the recommended requests of one pod in short, such as "cpu 1, memory 1136Mi → 512Mi".
	// gocrane does not have it.
	// +optional
	// +kubebuilder:validation:MaxLength=60
	Change string `json:"change,omitempty"`

	// Decisions hold the decision and its reason for each container and resource. gocrane does not have them. At most 200.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Decisions []VerticalDecision `json:"decisions,omitempty"`

	// Conditions report whether the autoscaler works. Types: Ready; Estimating (False while an estimator fails) and
	// Applied (False while the requests are not applied to pods).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VerticalAction is the decision about one request.
//
// +kubebuilder:validation:Enum=Raise;Lower;Hold;None
type VerticalAction string

// The actions.
const (
	// VerticalActionRaise raises the request.
	VerticalActionRaise VerticalAction = "Raise"
	// VerticalActionLower lowers it.
	VerticalActionLower VerticalAction = "Lower"
	// VerticalActionHold does not change it.
	VerticalActionHold VerticalAction = "Hold"
	// VerticalActionNone means that there is no estimate.
	VerticalActionNone VerticalAction = "None"
)

// VerticalDecision is the decision about one resource of one container.
type VerticalDecision struct {
	// ContainerName is the name of the container.
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName"`

	// Resource is cpu or memory.
	Resource corev1.ResourceName `json:"resource"`

	// Estimator is the type of the estimator whose result applies; empty without a result.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Estimator string `json:"estimator,omitempty"`

	// Action is Raise, Lower, Hold or None.
	Action VerticalAction `json:"action"`

	// Request is the new request of the container; absent where it does not change.
	// +optional
	Request *resource.Quantity `json:"request,omitempty"`

	// Reason is the reason for the decision.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// RaisedAt and LoweredAt are the times at which the request was last raised and lowered; absent before that. The
	// stabilization windows start there.
	// +optional
	RaisedAt *metav1.Time `json:"raisedAt,omitempty"`
	// LoweredAt is the time at which the request was last lowered; see RaisedAt.
	// +optional
	LoweredAt *metav1.Time `json:"loweredAt,omitempty"`
}

// ResourceEstimatorStatus is the answer of one estimator.
type ResourceEstimatorStatus struct {
	// Type of the estimator.
	// +optional
	Type string `json:"type,omitempty"`

	// LastUpdateTime is when it last answered.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`

	// Recommendation is its answer.
	// +optional
	Recommendation *RecommendedPodResources `json:"recommendation,omitempty"`
}

// RecommendedPodResources holds the recommended requests of a workload's containers. It is written as in a
// VerticalPodAutoscaler.
type RecommendedPodResources struct {
	// ContainerRecommendations are the recommended requests by container.
	// +optional
	ContainerRecommendations []RecommendedContainerResources `json:"containerRecommendations,omitempty"`
}

// RecommendedContainerResources holds the recommended requests of one container.
type RecommendedContainerResources struct {
	// ContainerName is the name of the container.
	// +optional
	ContainerName string `json:"containerName,omitempty"`

	// Target is the recommended request by resource, within minAllowed and maxAllowed.
	Target corev1.ResourceList `json:"target"`

	// LowerBound is the request below which the container is likely to suffer.
	// +optional
	LowerBound corev1.ResourceList `json:"lowerBound,omitempty"`

	// UpperBound is the request above which resources are likely to be wasted.
	// +optional
	UpperBound corev1.ResourceList `json:"upperBound,omitempty"`

	// UncappedTarget is the target without minAllowed and maxAllowed.
	// +optional
	UncappedTarget corev1.ResourceList `json:"uncappedTarget,omitempty"`
}

// EffectiveVerticalPodAutoscalerList is a list of EffectiveVerticalPodAutoscalers.
//
// +kubebuilder:object:root=true
type EffectiveVerticalPodAutoscalerList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the EffectiveVerticalPodAutoscalers of the list.
	Items []EffectiveVerticalPodAutoscaler `json:"items"`
}
