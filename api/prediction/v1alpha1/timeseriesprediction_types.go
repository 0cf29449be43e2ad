// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MetricType says how the past of a metric is found.
//
// +kubebuilder:validation:Enum=ResourceQuery;MetricQuery;ExpressionQuery
type MetricType string

// The metric types.
const (
	// ResourceQueryMetricType is the use of cpu or memory by the target.
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
	// OperatorEqual takes series whose label equals the value.
	OperatorEqual Operator = "="
	// OperatorNotEqual takes series whose label differs from the value.
	OperatorNotEqual Operator = "!="
	// OperatorRegexMatch takes series whose label matches the regular expression.
	OperatorRegexMatch Operator = "=~"
	// OperatorNotRegexMatch takes series whose label does not match the regular expression.
	OperatorNotRegexMatch Operator = "!~"
	// OperatorIn takes series whose label is one of the values.
	OperatorIn Operator = "in"
)

// TimeSeriesPrediction asks for a forecast of metrics of one target and holds it in its status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tsp
// +kubebuilder:printcolumn:name="TargetRefName",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="TargetRefKind",type=string,JSONPath=`.spec.targetRef.kind`
// +kubebuilder:printcolumn:name="PredictionWindowSeconds",type=integer,JSONPath=`.spec.predictionWindowSeconds`
// +kubebuilder:printcolumn:name="READY",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="STALE",type=string,JSONPath=`.status.conditions[?(@.type=="Stale")].status`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="MESSAGE",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="has(self.spec.targetRef) && has(self.spec.targetRef.name) && size(self.spec.targetRef.name) > 0",fieldPath=".spec.targetRef",reason="FieldValueRequired",message="the name of the target is required"
type TimeSeriesPrediction struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is forecast, how and how far.
	Spec TimeSeriesPredictionSpec `json:"spec"`
	// Status holds the forecast, written by the controller.
	// +optional
	Status TimeSeriesPredictionStatus `json:"status,omitzero"`
}

// TimeSeriesPredictionSpec says what is forecast, how and how far.
type TimeSeriesPredictionSpec struct {
	// PredictionMetrics are the metrics to forecast, from 1 to 100. A resourceIdentifier stands once.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(m, self.exists_one(o, o.resourceIdentifier == m.resourceIdentifier))",message="resourceIdentifier must be unique in the list"
	PredictionMetrics []PredictionMetric `json:"predictionMetrics"`

	// TargetRef is the workload or node whose metrics are forecast. Name is needed; kind and apiVersion are needed for
	// a resourceQuery. In the template of a ClusterNodePrediction it is left out: it is the node.
	// +optional
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`

	// PredictionWindowSeconds is how far ahead is forecast at least, in seconds, from 600 up. The status holds up to
	// twice as much.
	// +kubebuilder:validation:Minimum=600
	PredictionWindowSeconds int32 `json:"predictionWindowSeconds"`
}

// PredictionMetric is one metric to forecast. The query that its type names has to be there; others are ignored.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'ResourceQuery' || has(self.resourceQuery)",fieldPath=".resourceQuery",reason="FieldValueRequired",message="the type ResourceQuery needs resourceQuery"
// +kubebuilder:validation:XValidation:rule="self.type != 'MetricQuery' || has(self.metricQuery)",fieldPath=".metricQuery",reason="FieldValueRequired",message="the type MetricQuery needs metricQuery"
// +kubebuilder:validation:XValidation:rule="self.type != 'ExpressionQuery' || has(self.expressionQuery)",fieldPath=".expressionQuery",reason="FieldValueRequired",message="the type ExpressionQuery needs expressionQuery"
type PredictionMetric struct {
	// ResourceIdentifier names the metric in this object and in its status, such as resource.cpu.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ResourceIdentifier string `json:"resourceIdentifier"`

	// Type is ResourceQuery, MetricQuery or ExpressionQuery, and says which of the queries is used.
	Type MetricType `json:"type"`

	// ResourceQuery is the resource whose use by the target is forecast: cpu (cores) or memory (bytes).
	// +optional
	// +kubebuilder:validation:Enum=cpu;memory
	ResourceQuery *corev1.ResourceName `json:"resourceQuery,omitempty"`

	// MetricQuery is a metric by its name and labels.
	// +optional
	MetricQuery *MetricQuery `json:"metricQuery,omitempty"`

	// ExpressionQuery is an expression in the query language of the source of history, such as PromQL.
	// +optional
	ExpressionQuery *ExpressionQuery `json:"expressionQuery,omitempty"`

	// Algorithm is how the metric is forecast. Absent means that Crane chooses.
	// +optional
	Algorithm Algorithm `json:"algorithm,omitzero"`

	// Scaling asks for an account, on the metric's own past, of how much of the forecast is worth its replicas. The answer is in
	// the status. Used with the algorithm auto alone; EffectiveHorizontalPodAutoscalers set it.
	// +optional
	Scaling *ScalingPlant `json:"scaling,omitempty"`
}

// ScalingPlant is what scales with the metric.
type ScalingPlant struct {
	// PodCapacity is the load that one ready pod carries, in the unit of the metric; more than 0.
	PodCapacity Number `json:"podCapacity"`

	// Target is the share of a pod's capacity that the autoscaler aims for, more than 0 and at most 1.
	Target Number `json:"target"`

	// LagSeconds is how long it takes from load to ready pods, in seconds: the age of metrics, a sync period of the autoscaler
	// and the start-up time of a pod.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7200
	LagSeconds int32 `json:"lagSeconds"`

	// StabilizationSeconds is for how long the autoscaler keeps what load once asked for, in seconds.
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

	// QueryConditions are conditions on the labels of the series. All have to hold.
	// +optional
	// +kubebuilder:validation:MaxItems=50
	QueryConditions []QueryCondition `json:"labels,omitempty"`
}

// ExpressionQuery is an expression in the query language of the source of history.
type ExpressionQuery struct {
	// Expression is the expression; for Prometheus it is PromQL that gives a vector.
	// +kubebuilder:validation:MinLength=1
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

	// Value is the value to compare with; several for in.
	// +optional
	Value []string `json:"value,omitempty"`
}

// TimeSeriesPredictionStatus is the forecast.
type TimeSeriesPredictionStatus struct {
	// PredictionMetrics are the forecasts, one for each metric of the spec that has one.
	// +optional
	PredictionMetrics []PredictionMetricStatus `json:"predictionMetrics,omitempty"`

	// Conditions say whether the forecasts are ready and why not, and whether they age because new samples do not come.
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

	// Ready says that every series is forecast to the end of the window.
	Ready bool `json:"ready"`

	// Reason says in one sentence why the metric is not ready, why the forecast comes from something simpler than was
	// asked for, or what it was made by.
	// +optional
	Reason string `json:"reason,omitempty"`

	// UpdateTime is when the forecast was made.
	// +optional
	UpdateTime *metav1.Time `json:"updateTime,omitempty"`

	// LastSampleTime is the newest sample that the forecast knows: its age is that of the forecast.
	// +optional
	LastSampleTime *metav1.Time `json:"lastSampleTime,omitempty"`

	// Skill is how much better the forecast was than a constant on the metric's own past: "1" is perfect, "0" no better,
	// less is worse; the least of the series. Absent where the past is too short to tell, and for percentile, which is a
	// constant.
	// +optional
	Skill string `json:"skill,omitempty"`

	// Scaling says how much of the forecast is worth its replicas. Absent where the spec does not ask for it.
	// +optional
	Scaling *ScalingChoice `json:"scaling,omitempty"`
}

// ScalingChoice is how much of a forecast is worth its replicas, by what it would have cost and spared on the metric's own past.
type ScalingChoice struct {
	// Use says whether the forecast is to be acted on. If so the samples of the forecast are of the quantile that was chosen.
	Use bool `json:"use"`

	// Quantile is the quantile of the load to come that is carried, such as "0.8". Absent where the forecast is not used.
	// +optional
	Quantile string `json:"quantile,omitempty"`

	// Fill is the share of a pod's capacity that it may fill, such as "0.85". Absent where the forecast is not used.
	// +optional
	Fill string `json:"fill,omitempty"`

	// LeadSeconds is how far ahead load is looked for, in seconds.
	// +optional
	LeadSeconds int32 `json:"leadSeconds,omitempty"`

	// ExtraReplicas is how many more replica hours it would have cost, as a fraction: "0.03" is 3 %.
	// +optional
	ExtraReplicas string `json:"extraReplicas,omitempty"`

	// SparedTime is how much of the time under capacity it would have spared, as a fraction: "0.8" is 80 %.
	// +optional
	SparedTime string `json:"sparedTime,omitempty"`

	// Why says in a sentence what speaks for the choice.
	// +optional
	Why string `json:"why,omitempty"`

	// Ledger is the state of the account in base64, so that it goes on after a restart; of no use to others.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Ledger string `json:"ledger,omitempty"`
}

// MetricTimeSeries is the forecast of one series.
type MetricTimeSeries struct {
	// Labels tell the series apart. Absent for a metric with one series.
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
