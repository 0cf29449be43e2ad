// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MetricType is the way in which the history of a metric is read.
//
// +kubebuilder:validation:Enum=ResourceQuery;MetricQuery;ExpressionQuery
type MetricType string

// The metric types.
const (
	// ResourceQueryMetricType is the CPU or memory usage of the target.
	ResourceQueryMetricType MetricType = "ResourceQuery"
	// MetricQueryMetricType is a metric by its name and labels.
	MetricQueryMetricType MetricType = "MetricQuery"
	// ExpressionQueryMetricType is the result of an expression in the query language of the source.
	ExpressionQueryMetricType MetricType = "ExpressionQuery"
)

// Operator compares a label.
//
// +kubebuilder:validation:Enum="=";"!=";"=~";"!~";in
type Operator string

// The operators.
const (
	// OperatorEqual selects series whose label equals the value.
	OperatorEqual Operator = "="
	// OperatorNotEqual selects series whose label differs from the value.
	OperatorNotEqual Operator = "!="
	// OperatorRegexMatch selects series whose label matches the regular expression.
	OperatorRegexMatch Operator = "=~"
	// OperatorNotRegexMatch selects series whose label does not match the regular expression.
	OperatorNotRegexMatch Operator = "!~"
	// OperatorIn selects series whose label is one of the values.
	OperatorIn Operator = "in"
)

// QueryScope is the scope of the queries of a prediction.
//
// +kubebuilder:validation:Enum=Namespace;Cluster
type QueryScope string

// The query scopes.
const (
	// QueryScopeNamespace reads the series and targets of the prediction's namespace.
	QueryScopeNamespace QueryScope = "Namespace"
	// QueryScopeCluster reads all series and targets.
	QueryScopeCluster QueryScope = "Cluster"
)

// TimeSeriesPrediction configures forecasts of metrics of one target; its status holds the forecasts.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tsp
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Skill",type=string,JSONPath=`.status.predictionMetrics[0].skill`,description="The skill of the first metric."
// +kubebuilder:printcolumn:name="STALE",type=string,JSONPath=`.status.conditions[?(@.type=="Stale")].status`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="TargetRefKind",type=string,priority=1,JSONPath=`.spec.targetRef.kind`
// +kubebuilder:printcolumn:name="PredictionWindowSeconds",type=integer,priority=1,JSONPath=`.spec.predictionWindowSeconds`
// +kubebuilder:printcolumn:name="ORIGINS",type=integer,priority=1,JSONPath=`.status.predictionMetrics[0].skillOrigins`,description="The number of origins that the skill rests on."
// +kubebuilder:validation:XValidation:rule="has(self.spec.targetRef) && has(self.spec.targetRef.name) && size(self.spec.targetRef.name) > 0",fieldPath=".spec.targetRef",reason="FieldValueRequired",message="the name of the target is required"
type TimeSeriesPrediction struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec configures the metrics, the algorithm and the horizon.
	Spec TimeSeriesPredictionSpec `json:"spec"`
	// Status holds the forecast, written by the controller.
	// +optional
	Status TimeSeriesPredictionStatus `json:"status,omitzero"`
}

// TimeSeriesPredictionSpec configures the metrics, the algorithm and the horizon.
type TimeSeriesPredictionSpec struct {
	// PredictionMetrics are the metrics to forecast, from 1 to 100, with unique resourceIdentifiers.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=resourceIdentifier
	PredictionMetrics []PredictionMetric `json:"predictionMetrics"`

	// TargetRef is the workload or node whose metrics are forecast. Name is required; kind and apiVersion are required
	// for a resourceQuery. In the template of a ClusterNodePrediction it is omitted: the target is the node.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(!has(self.kind) || size(self.kind) <= 253) && (!has(self.name) || size(self.name) <= 253) && (!has(self.namespace) || size(self.namespace) <= 253) && (!has(self.apiVersion) || size(self.apiVersion) <= 317)",message="kind, name and namespace have at most 253 characters, apiVersion 317"
	// +kubebuilder:validation:XValidation:rule="(!has(self.name) || self.name == '' || self.name.matches('^[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?$'))",fieldPath=".name",message="a name has letters, digits and the characters . _ : -"
	// +kubebuilder:validation:XValidation:rule="(!has(self.kind) || self.kind.matches('^[A-Za-z0-9-]*$')) && (!has(self.apiVersion) || self.apiVersion.matches('^[A-Za-z0-9./-]*$'))",message="kind and apiVersion have the characters that Kubernetes allows in them"
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`

	// QueryScope is Namespace (series and targets of the namespace of this object) or Cluster (all). It applies where craned
	// isolates tenants; Cluster then requires the verb query-cluster on timeseriespredictions in the whole cluster. Absent means
	// Namespace.
	// +optional
	QueryScope QueryScope `json:"queryScope,omitempty"`

	// PredictionWindowSeconds is the minimum horizon in seconds; less than 600 counts as 600. The status holds up to twice as
	// much.
	// +kubebuilder:validation:Minimum=1
	PredictionWindowSeconds int32 `json:"predictionWindowSeconds"`
}

// Window returns the minimum horizon: PredictionWindowSeconds, and not less than MinPredictionWindowSeconds.
func (s *TimeSeriesPredictionSpec) Window() time.Duration {
	return time.Duration(max(s.PredictionWindowSeconds, MinPredictionWindowSeconds)) * time.Second
}

// PredictionMetric is one metric to forecast. The query of its type is required; others are ignored.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'ResourceQuery' || has(self.resourceQuery)",fieldPath=".resourceQuery",reason="FieldValueRequired",message="the type ResourceQuery needs resourceQuery"
// +kubebuilder:validation:XValidation:rule="self.type != 'MetricQuery' || has(self.metricQuery)",fieldPath=".metricQuery",reason="FieldValueRequired",message="the type MetricQuery needs metricQuery"
// +kubebuilder:validation:XValidation:rule="self.type != 'ExpressionQuery' || has(self.expressionQuery)",fieldPath=".expressionQuery",reason="FieldValueRequired",message="the type ExpressionQuery needs expressionQuery"
type PredictionMetric struct {
	// ResourceIdentifier names the metric in this object and in its status, such as resource.cpu.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ResourceIdentifier string `json:"resourceIdentifier"`

	// Type is ResourceQuery, MetricQuery or ExpressionQuery, and selects the query that is used.
	Type MetricType `json:"type"`

	// ResourceQuery is the resource whose usage by the target is forecast: cpu (cores) or memory (bytes).
	// +optional
	// +kubebuilder:validation:Enum=cpu;memory
	ResourceQuery *corev1.ResourceName `json:"resourceQuery,omitempty"`

	// MetricQuery is a metric by its name and labels.
	// +optional
	MetricQuery *MetricQuery `json:"metricQuery,omitempty"`

	// ExpressionQuery is an expression in the query language of the source of history, such as PromQL.
	// +optional
	ExpressionQuery *ExpressionQuery `json:"expressionQuery,omitempty"`

	// Algorithm is the forecaster of the metric. Absent means that Crane selects it.
	// +optional
	Algorithm Algorithm `json:"algorithm,omitzero"`

	// Scaling requests a replay of scaling on the history of the metric, which determines how much of the forecast justifies
	// its replicas. The result is in the status. Used with the algorithm auto only; EffectiveHorizontalPodAutoscalers set it.
	// +optional
	Scaling *ScalingPlant `json:"scaling,omitempty"`
}

// ScalingPlant describes the pods that scale with the metric.
type ScalingPlant struct {
	// PodCapacity is the load that one ready pod can serve, in the unit of the metric; more than 0.
	PodCapacity Number `json:"podCapacity"`

	// Target is the target utilization of a pod's capacity as a ratio, more than 0 and at most 1.
	Target Number `json:"target"`

	// LagSeconds is the time from a change of load to ready pods, in seconds: the age of metrics, a sync period of the autoscaler
	// and the start-up time of a pod.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7200
	LagSeconds int32 `json:"lagSeconds"`

	// StabilizationSeconds is the stabilization window of the autoscaler for scaling down, in seconds.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	StabilizationSeconds int32 `json:"stabilizationSeconds"`
}

// MetricQuery is a metric by its name and labels.
type MetricQuery struct {
	// MetricName is the name of the metric.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	MetricName string `json:"metricName"`

	// QueryConditions are conditions on the labels of the series, all of which must be met.
	// +optional
	// +kubebuilder:validation:MaxItems=50
	QueryConditions []QueryCondition `json:"labels,omitempty"`
}

// ExpressionQuery is an expression in the query language of the source of history.
type ExpressionQuery struct {
	// Expression is the expression; for Prometheus it is PromQL that returns a vector. At most 8192 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	Expression string `json:"expression"`
}

// QueryCondition is a condition on one label.
type QueryCondition struct {
	// Key is the name of the label.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`

	// Operator is =, !=, =~, !~ (regular expressions) or in. Absent means =.
	// +optional
	Operator Operator `json:"operator,omitempty"`

	// Value is the value to compare with; several for in. At most 100 values of 1024 characters.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	Value []string `json:"value,omitempty"`
}

// TimeSeriesPredictionStatus is the forecast.
type TimeSeriesPredictionStatus struct {
	// PredictionMetrics are the forecasts, one for each metric of the spec that has one.
	// +optional
	PredictionMetrics []PredictionMetricStatus `json:"predictionMetrics,omitempty"`

	// Conditions report whether the forecasts are ready, and whether they are stale because new samples are missing.
	// Types: Ready, Stale.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PredictionMetricStatus is the forecast of one metric.
type PredictionMetricStatus struct {
	// ResourceIdentifier is the name of the metric in the spec.
	// +optional
	ResourceIdentifier string `json:"resourceIdentifier,omitempty"`

	// Prediction is the forecast of each series of the metric.
	// +optional
	Prediction []MetricTimeSeries `json:"prediction,omitempty"`

	// Ready is true if every series is forecast to the end of the window.
	Ready bool `json:"ready"`

	// Reason is one sentence: why the metric is not ready, why a simpler forecaster was used than requested, or which
	// forecaster was used.
	// +optional
	Reason string `json:"reason,omitempty"`

	// UpdateTime is the time at which the forecast was computed.
	// +optional
	UpdateTime *metav1.Time `json:"updateTime,omitempty"`

	// LastSampleTime is the time of the newest sample in the forecast, which is the age of the forecast.
	// +optional
	LastSampleTime *metav1.Time `json:"lastSampleTime,omitempty"`

	// Skill compares the forecast with a constant, the 0.95 quantile of earlier samples, in a replay of the metric at daily
	// origins: "1" is perfect, "0" equal to the constant, less is worse. It is the minimum over the series. Absent where the
	// history is too short, and for percentile, which is a constant.
	// +optional
	Skill string `json:"skill,omitempty"`

	// SkillOrigins is the number of origins that the skill rests on, the minimum over the series.
	// +optional
	SkillOrigins int32 `json:"skillOrigins,omitempty"`

	// Scaling is the part of the forecast that justifies its replicas. Absent where the spec does not request it.
	// +optional
	Scaling *ScalingChoice `json:"scaling,omitempty"`
}

// ScalingChoice is the part of a forecast that justifies its replicas, by its cost and benefit on the history of the metric.
type ScalingChoice struct {
	// Use is true if the forecast scales. The samples of the forecast are then of the selected quantile.
	Use bool `json:"use"`

	// Basis is the meaning of the samples: load (the forecast load of each step) or highs (the highest load of a quarter of an hour over
	// the past days). Absent where the forecast is not used.
	// +optional
	Basis string `json:"basis,omitempty"`

	// Quantile is the quantile of the forecast load for which replicas are requested, such as "0.8". Absent where the forecast is not used.
	// +optional
	Quantile string `json:"quantile,omitempty"`

	// Fill is the share of a pod's capacity that it may fill, such as "0.85". Absent where the forecast is not used.
	// +optional
	Fill string `json:"fill,omitempty"`

	// LeadSeconds is the horizon of the forecast load that is used, in seconds.
	// +optional
	LeadSeconds int32 `json:"leadSeconds,omitempty"`

	// ExtraReplicas is the increase of replica hours in the replay, as a fraction: "0.03" is 3 %.
	// +optional
	ExtraReplicas string `json:"extraReplicas,omitempty"`

	// SparedTime is the reduction of the time under capacity in the replay, as a fraction: "0.8" is 80 %.
	// +optional
	SparedTime string `json:"sparedTime,omitempty"`

	// ActualExtraReplicas is the increase of replica hours over those of the autoscaler alone that the choices of the past days
	// caused, as a fraction: "0.03" is 3 %. Absent before a choice was used.
	// +optional
	ActualExtraReplicas string `json:"actualExtraReplicas,omitempty"`

	// ActualSparedTime is the reduction of the time under capacity that the choices of the past days caused, as a fraction: "0.8"
	// is 80 %. Absent before a choice was used.
	// +optional
	ActualSparedTime string `json:"actualSparedTime,omitempty"`

	// Why explains the choice in one sentence.
	// +optional
	Why string `json:"why,omitempty"`

	// Ledger is the state of the replay in base64, for use by Crane after a restart.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Ledger string `json:"ledger,omitempty"`
}

// MetricTimeSeries is the forecast of one series.
type MetricTimeSeries struct {
	// Labels identify the series. Absent for a metric with one series.
	// +optional
	Labels []Label `json:"labels,omitempty"`

	// Samples are the forecast values, in the order of time.
	// +optional
	Samples []Sample `json:"samples,omitempty"`
}

// Label is a label of a series.
type Label struct {
	// Name of the label.
	// +optional
	Name string `json:"name,omitempty"`

	// Value of the label.
	// +optional
	Value string `json:"value,omitempty"`
}

// Sample is one forecast value.
type Sample struct {
	// Value in the unit of the metric (cores, bytes), as a decimal number with five decimals.
	// +optional
	Value string `json:"value,omitempty"`

	// Timestamp in seconds since 1970-01-01 UTC.
	// +optional
	Timestamp int64 `json:"timestamp,omitempty"`
}

// TimeSeriesPredictionList is a list of TimeSeriesPredictions.
//
// +kubebuilder:object:root=true
type TimeSeriesPredictionList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the TimeSeriesPredictions of the list.
	Items []TimeSeriesPrediction `json:"items"`
}
