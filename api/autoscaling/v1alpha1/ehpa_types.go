// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// ScaleStrategy determines whether a target is scaled.
//
// +kubebuilder:validation:Enum=Auto;Preview
type ScaleStrategy string

// The scale strategies.
const (
	// ScaleStrategyAuto scales the target.
	ScaleStrategyAuto ScaleStrategy = "Auto"
	// ScaleStrategyPreview computes replicas and shows them without scaling the target.
	ScaleStrategyPreview ScaleStrategy = "Preview"
)

// EffectiveHorizontalPodAutoscaler scales a workload ahead of its load: by current metrics, their forecasts, and cron
// schedules. The controller creates a HorizontalPodAutoscaler named ehpa-<name> from it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ehpa
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.scaleTargetRef.name`
// +kubebuilder:printcolumn:name="STRATEGY",type=string,JSONPath=`.spec.scaleStrategy`,description="Whether the target is scaled."
// +kubebuilder:printcolumn:name="MINPODS",type=integer,JSONPath=`.spec.minReplicas`,description="The minimum number of replicas."
// +kubebuilder:printcolumn:name="MAXPODS",type=integer,JSONPath=`.spec.maxReplicas`,description="The maximum number of replicas."
// +kubebuilder:printcolumn:name="REPLICAS",type=integer,JSONPath=`.status.expectReplicas`,description="The desired number of replicas."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="SPECIFICPODS",type=integer,priority=1,JSONPath=`.spec.specificReplicas`,description="The fixed number of replicas of a preview."
// +kubebuilder:printcolumn:name="CURRENT",type=integer,priority=1,JSONPath=`.status.currentReplicas`,description="The current number of replicas of the target."
// +kubebuilder:printcolumn:name="PREDICTION",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="PredictionReady")].status`
// +kubebuilder:printcolumn:name="WINNER",type=string,priority=1,JSONPath=`.status.winner`,description="The metric with the largest number of replicas."
type EffectiveHorizontalPodAutoscaler struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec configures the target, the metrics and the bounds.
	Spec EffectiveHorizontalPodAutoscalerSpec `json:"spec"`
	// Status reports the desired number of replicas. The controller writes it.
	// +optional
	Status EffectiveHorizontalPodAutoscalerStatus `json:"status,omitzero"`
}

// EffectiveHorizontalPodAutoscalerSpec configures the target, the metrics and the bounds.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",fieldPath=".minReplicas",message="must be at most maxReplicas"
type EffectiveHorizontalPodAutoscalerSpec struct {
	// ScaleTargetRef is the workload to scale, in the same namespace. It has a scale subresource.
	// +kubebuilder:validation:XValidation:rule="size(self.kind) > 0",fieldPath=".kind",reason="FieldValueRequired",message="the kind of the target is required"
	// +kubebuilder:validation:XValidation:rule="size(self.name) > 0",fieldPath=".name",reason="FieldValueRequired",message="the name of the target is required"
	// +kubebuilder:validation:XValidation:rule="size(self.kind) <= 253 && size(self.name) <= 253 && (!has(self.apiVersion) || size(self.apiVersion) <= 317)",message="kind and name have at most 253 characters, apiVersion 317"
	// +kubebuilder:validation:XValidation:rule="self.name == '' || self.name.matches('^[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?$')",fieldPath=".name",message="a name has letters, digits and the characters . _ : -"
	// +kubebuilder:validation:XValidation:rule="self.kind.matches('^[A-Za-z0-9-]*$') && (!has(self.apiVersion) || self.apiVersion.matches('^[A-Za-z0-9./-]*$'))",message="kind and apiVersion have the characters that Kubernetes allows in them"
	ScaleTargetRef autoscalingv2.CrossVersionObjectReference `json:"scaleTargetRef"`

	// MinReplicas is the minimum number of replicas, at most maxReplicas. 0 needs the cluster's HPA to scale to zero.
	// Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is the maximum number of replicas, from 1 up.
	// +kubebuilder:validation:Minimum=1
	MaxReplicas int32 `json:"maxReplicas"`

	// ScaleStrategy is Auto (scale the target) or Preview (compute and show, do not scale). Defaults to Auto.
	// +optional
	// +kubebuilder:default=Auto
	ScaleStrategy ScaleStrategy `json:"scaleStrategy,omitempty"`

	// SpecificReplicas is a fixed number of replicas that the target is set to. Used with Preview only; absent means
	// that the target is not scaled.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SpecificReplicas *int32 `json:"specificReplicas,omitempty"`

	// Metrics determine the number of replicas, as in a HorizontalPodAutoscaler (autoscaling/v2). The largest proposal
	// applies. At most 100.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:XValidation:rule="self.type in ['Resource', 'ContainerResource', 'Pods', 'Object', 'External']",fieldPath=".type",message="must be Resource, ContainerResource, Pods, Object or External"
	// +kubebuilder:validation:items:XValidation:rule="self.type != 'Resource' || has(self.resource)",fieldPath=".resource",reason="FieldValueRequired",message="a metric of the type Resource needs it"
	// +kubebuilder:validation:items:XValidation:rule="self.type != 'ContainerResource' || has(self.containerResource)",fieldPath=".containerResource",reason="FieldValueRequired",message="a metric of the type ContainerResource needs it"
	// +kubebuilder:validation:items:XValidation:rule="self.type != 'Pods' || has(self.pods)",fieldPath=".pods",reason="FieldValueRequired",message="a metric of the type Pods needs it"
	// +kubebuilder:validation:items:XValidation:rule="self.type != 'Object' || has(self.object)",fieldPath=".object",reason="FieldValueRequired",message="a metric of the type Object needs it"
	// +kubebuilder:validation:items:XValidation:rule="self.type != 'External' || has(self.external)",fieldPath=".external",reason="FieldValueRequired",message="a metric of the type External needs it"
	// +kubebuilder:validation:items:XValidation:rule="[has(self.resource), has(self.containerResource), has(self.pods), has(self.object), has(self.external)].filter(set, set).size() <= 1",message="must have the source that its type names and no other"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.resource) || has(self.resource.target.averageUtilization) != has(self.resource.target.averageValue)",fieldPath=".resource.target",message="must have either averageUtilization or averageValue"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.resource) || !has(self.resource.target.averageUtilization) || self.resource.target.averageUtilization > 0",fieldPath=".resource.target.averageUtilization",message="must be more than 0"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.containerResource) || has(self.containerResource.target.averageUtilization) != has(self.containerResource.target.averageValue)",fieldPath=".containerResource.target",message="must have either averageUtilization or averageValue"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.containerResource) || !has(self.containerResource.target.averageUtilization) || self.containerResource.target.averageUtilization > 0",fieldPath=".containerResource.target.averageUtilization",message="must be more than 0"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.pods) || has(self.pods.target.averageValue)",fieldPath=".pods.target",message="must have averageValue"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.object) || has(self.object.target.value) || has(self.object.target.averageValue)",fieldPath=".object.target",message="must have value or averageValue"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.external) || has(self.external.target.value) != has(self.external.target.averageValue)",fieldPath=".external.target",message="must have either value or averageValue"
	Metrics []autoscalingv2.MetricSpec `json:"metrics,omitempty"`

	// Crons request a number of replicas at scheduled times. The largest of their numbers and those of the metrics
	// applies. At most 100.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Crons []CronSpec `json:"crons,omitempty"`

	// Behavior limits how fast the target is scaled up and down, as in a HorizontalPodAutoscaler (autoscaling/v2).
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.scaleUp) || !has(self.scaleUp.stabilizationWindowSeconds) || (self.scaleUp.stabilizationWindowSeconds >= 0 && self.scaleUp.stabilizationWindowSeconds <= 3600)",fieldPath=".scaleUp.stabilizationWindowSeconds",message="must be from 0 to 3600"
	// +kubebuilder:validation:XValidation:rule="!has(self.scaleUp) || !has(self.scaleUp.selectPolicy) || self.scaleUp.selectPolicy in ['Max', 'Min', 'Disabled']",fieldPath=".scaleUp.selectPolicy",message="must be Max, Min or Disabled"
	// +kubebuilder:validation:XValidation:rule="!has(self.scaleUp) || !has(self.scaleUp.policies) || self.scaleUp.policies.all(p, p.type in ['Pods', 'Percent'] && p.value > 0 && p.periodSeconds > 0 && p.periodSeconds <= 1800)",fieldPath=".scaleUp.policies",message="the type must be Pods or Percent, the value more than 0, periodSeconds from 1 to 1800"
	// +kubebuilder:validation:XValidation:rule="!has(self.scaleDown) || !has(self.scaleDown.stabilizationWindowSeconds) || (self.scaleDown.stabilizationWindowSeconds >= 0 && self.scaleDown.stabilizationWindowSeconds <= 3600)",fieldPath=".scaleDown.stabilizationWindowSeconds",message="must be from 0 to 3600"
	// +kubebuilder:validation:XValidation:rule="!has(self.scaleDown) || !has(self.scaleDown.selectPolicy) || self.scaleDown.selectPolicy in ['Max', 'Min', 'Disabled']",fieldPath=".scaleDown.selectPolicy",message="must be Max, Min or Disabled"
	// +kubebuilder:validation:XValidation:rule="!has(self.scaleDown) || !has(self.scaleDown.policies) || self.scaleDown.policies.all(p, p.type in ['Pods', 'Percent'] && p.value > 0 && p.periodSeconds > 0 && p.periodSeconds <= 1800)",fieldPath=".scaleDown.policies",message="the type must be Pods or Percent, the value more than 0, periodSeconds from 1 to 1800"
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior,omitempty"`

	// Prediction also scales by the forecast of the metrics. Absent means no forecast.
	// +optional
	Prediction *Prediction `json:"prediction,omitempty"`
}

// CronSpec requests a number of replicas from each start to the next end.
type CronSpec struct {
	// Name of the schedule, unique in the list.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	CronName string `json:"name"`

	// Description is a comment without effect.
	// +optional
	Description string `json:"description,omitempty"`

	// TimeZone is the zone of start and end: a name of the IANA database such as Asia/Shanghai, or Local for the zone of the
	// pods of craned and metric-adapter. Absent means UTC, or Local if these run with --ehpa-cron-local-time.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+/-]*$`
	TimeZone *string `json:"timezone,omitempty"`

	// Start is when the schedule becomes active, as five cron fields (minute, hour, day of month, month, day of week),
	// such as "0 8 * * 1-5", or a descriptor such as @daily.
	Start CronExpression `json:"start"`

	// End is when the schedule stops being active, in the same form. At this minute it is no longer active.
	End CronExpression `json:"end"`

	// TargetReplicas is the number of replicas while the schedule is active, from 0 up. minReplicas and maxReplicas
	// bound it.
	// +kubebuilder:validation:Minimum=0
	TargetReplicas int32 `json:"targetReplicas"`
}

// CronExpression is a schedule of five cron fields, or a descriptor such as @daily or @every 6h.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*((CRON_)?TZ=\S+\s+)?(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every\s+[0-9a-z.]+|([^\s@]+\s+){4}[^\s@]+)\s*$')`,message="must be five cron fields (minute, hour, day of month, month, day of week) or a descriptor such as @daily"
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*(@|(CRON_)?TZ=)') || self.matches(r'^\s*([*?]|0*[1-5]?[0-9])(-(0*[1-5]?[0-9]))?(/0*[1-9][0-9]*)?(,([*?]|0*[1-5]?[0-9])(-(0*[1-5]?[0-9]))?(/0*[1-9][0-9]*)?)*(\s|$)')`,message="the minute must be from 0 to 59"
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*(@|(CRON_)?TZ=)') || self.matches(r'^\s*(\S+\s+){1}([*?]|0*(1?[0-9]|2[0-3]))(-(0*(1?[0-9]|2[0-3])))?(/0*[1-9][0-9]*)?(,([*?]|0*(1?[0-9]|2[0-3]))(-(0*(1?[0-9]|2[0-3])))?(/0*[1-9][0-9]*)?)*(\s|$)')`,message="the hour must be from 0 to 23"
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*(@|(CRON_)?TZ=)') || self.matches(r'^\s*(\S+\s+){2}([*?]|0*([1-9]|[12][0-9]|3[01]))(-(0*([1-9]|[12][0-9]|3[01])))?(/0*[1-9][0-9]*)?(,([*?]|0*([1-9]|[12][0-9]|3[01]))(-(0*([1-9]|[12][0-9]|3[01])))?(/0*[1-9][0-9]*)?)*(\s|$)')`,message="the day of month must be from 1 to 31"
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*(@|(CRON_)?TZ=)') || self.matches(r'^\s*(\S+\s+){3}([*?]|0*([1-9]|1[0-2])|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))(-(0*([1-9]|1[0-2])|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)))?(/0*[1-9][0-9]*)?(,([*?]|0*([1-9]|1[0-2])|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))(-(0*([1-9]|1[0-2])|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)))?(/0*[1-9][0-9]*)?)*(\s|$)')`,message="the month must be from 1 to 12 or JAN to DEC"
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*(@|(CRON_)?TZ=)') || self.matches(r'^\s*(\S+\s+){4}([*?]|0*[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat))(-(0*[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat)))?(/0*[1-9][0-9]*)?(,([*?]|0*[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat))(-(0*[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat)))?(/0*[1-9][0-9]*)?)*(\s|$)')`,message="the day of week must be from 0 (Sunday) to 6 or SUN to SAT"
type CronExpression string

// Prediction configures the horizon and algorithm of forecasts.
type Prediction struct {
	// PredictionWindowSeconds is the period of which the largest forecast value counts, in seconds. Less than 600 counts as
	// 600. Defaults to 3600.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=1
	PredictionWindowSeconds *int32 `json:"predictionWindowSeconds,omitempty"`

	// PredictionAlgorithm is how metrics are forecast. Absent means no forecast, as with gocrane.
	// +optional
	PredictionAlgorithm *PredictionAlgorithm `json:"predictionAlgorithm,omitempty"`
}

// PredictionAlgorithm selects a forecaster and its settings.
type PredictionAlgorithm struct {
	// AlgorithmType is dsp (cycles), percentile (one value from a histogram), or auto (the one with the least error
	// on the series' own past). Absent means auto.
	// +optional
	AlgorithmType predictionv1alpha1.AlgorithmType `json:"algorithmType,omitempty"`

	// DSP holds the settings of dsp. Ignored for other algorithms.
	// +optional
	DSP *predictionv1alpha1.DSP `json:"dsp,omitempty"`

	// Percentile holds the settings of percentile. Ignored for other algorithms.
	// +optional
	Percentile *predictionv1alpha1.Percentile `json:"percentile,omitempty"`
}

// EffectiveHorizontalPodAutoscalerStatus reports the state of an autoscaler.
type EffectiveHorizontalPodAutoscalerStatus struct {
	// ExpectReplicas is the desired number of replicas.
	// +optional
	ExpectReplicas *int32 `json:"expectReplicas,omitempty"`

	// CurrentReplicas is the current number of replicas of the target.
	// +optional
	CurrentReplicas *int32 `json:"currentReplicas,omitempty"`

	// LastScaleTime is the time at which the target was last scaled.
	// +optional
	LastScaleTime *metav1.Time `json:"lastScaleTime,omitempty"`

	// ObservedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Autoscaler is the origin of the number of replicas: HorizontalPodAutoscaler/<name>, whether or not Crane owns it;
	// Preview where Crane computes the number; empty without an autoscaler.
	// +optional
	Autoscaler string `json:"autoscaler,omitempty"`

	// Winner is the name of the largest proposal; empty without one.
	// +optional
	Winner string `json:"winner,omitempty"`

	// Why explains expectReplicas in one sentence.
	// +optional
	Why string `json:"why,omitempty"`

	// Proposals list the number of replicas of each metric, each forecast and the cron schedules, as of the last change of
	// any of these numbers.
	// +optional
	// +listType=map
	// +listMapKey=name
	Proposals []ReplicaProposal `json:"proposals,omitempty"`

	// Crons list when each cron schedule is active.
	// +optional
	// +listType=map
	// +listMapKey=name
	Crons []CronStatus `json:"crons,omitempty"`

	// Conditions report whether the autoscaler works. Types: Ready, PredictionReady, CronReady, and those of the
	// HPA: AbleToScale, ScalingActive, ScalingLimited.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ReplicaProposal is the number of replicas for one metric, forecast or schedule.
type ReplicaProposal struct {
	// Name is the resourceIdentifier of a metric (resource.cpu, pods.requests); the name of its forecast has the
	// prefix "prediction of ", that of a schedule the prefix "cron ".
	Name string `json:"name"`

	// Replicas is the proposed number. Absent without a proposal.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Current is the value of the metric, in its unit; percent where the target is a utilization.
	// +optional
	Current string `json:"current,omitempty"`

	// Target is the target value, in the same unit.
	// +optional
	Target string `json:"target,omitempty"`

	// Message is the reason why there is no proposal; for a forecast, the part of it that is used and the reason.
	// +optional
	Message string `json:"message,omitempty"`
}

// CronStatus reports when a cron schedule is active.
type CronStatus struct {
	// Name of the schedule.
	Name string `json:"name"`

	// Active is true while the schedule is active.
	Active bool `json:"active"`

	// NextStart is the time of the next start.
	// +optional
	NextStart *metav1.Time `json:"nextStart,omitempty"`

	// NextEnd is the time of the next end.
	// +optional
	NextEnd *metav1.Time `json:"nextEnd,omitempty"`

	// Message is the error of an invalid schedule.
	// +optional
	Message string `json:"message,omitempty"`
}

// EffectiveHorizontalPodAutoscalerList is a list of EffectiveHorizontalPodAutoscalers.
//
// +kubebuilder:object:root=true
type EffectiveHorizontalPodAutoscalerList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the EffectiveHorizontalPodAutoscalers of the list.
	Items []EffectiveHorizontalPodAutoscaler `json:"items"`
}
