// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DynamicSchedulerPolicy configures the load metrics of nodes and their effect on scheduling. The scheduler and the
// controller that annotates nodes read the same file.
//
// +kubebuilder:object:root=true
type DynamicSchedulerPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// Spec is the policy.
	Spec PolicySpec `json:"spec"`
}

// PolicySpec configures the load metrics of nodes and their effect on scheduling.
type PolicySpec struct {
	// SyncPeriod lists the metrics to read and their intervals, with unique names.
	SyncPeriod []SyncPolicy `json:"syncPolicy,omitempty"`

	// Predicate lists the limits of Filter: a node above one of them receives no new pod.
	Predicate []PredicatePolicy `json:"predicate,omitempty"`

	// Priority lists the weights of Score.
	Priority []PriorityPolicy `json:"priority,omitempty"`

	// HotValue lists the penalties of a node for recent placements.
	HotValue []HotValuePolicy `json:"hotValue,omitempty"`

	// WaterMarks are the water marks of each resource (cpu, memory), shared by scheduler, agent and rebalancing. They are
	// Crane's addition; absent means that only the predicate limits scheduling.
	WaterMarks map[corev1.ResourceName]WaterMarks `json:"waterMarks,omitempty"`
}

// SyncPolicy is a metric to read.
type SyncPolicy struct {
	// Name of the metric or recording rule, such as cpu_usage_avg_5m. It is also the key of the node's annotation.
	Name string `json:"name"`

	// Period is the interval between two readings, more than 0. A value expires five minutes after the next reading is due.
	Period metav1.Duration `json:"period"`

	// Query is PromQL that returns the percentage, 0 to 100, of every node; empty reads the series called name. It is
	// Crane's addition, for a Prometheus without recording rules.
	Query string `json:"query,omitempty"`

	// SampleTime is PromQL that returns the time of the newest raw sample of every node, in seconds since 1970. Values are
	// stamped with it, because the time of a query does not show that an exporter is dead. Empty reads the recorded
	// series node_cpu_sample_time_seconds or node_memory_sample_time_seconds for a metric without a query. It is Crane's
	// addition.
	SampleTime string `json:"sampleTime,omitempty"`

	// Resource that the metric is a share of, cpu or memory; empty derives it from a name with the prefix cpu_, mem_
	// or memory_. It is Crane's addition.
	Resource corev1.ResourceName `json:"resource,omitempty"`

	// Source that the metric is read from; empty for Prometheus. It is Crane's addition.
	Source MetricSource `json:"source,omitempty"`
}

// MetricSource is where a load metric is read from.
// +kubebuilder:validation:Enum=Prometheus;MetricsServer;Forecast
type MetricSource string

// The sources of load metrics.
const (
	// MetricSourcePrometheus is a recording rule or a query.
	MetricSourcePrometheus MetricSource = "Prometheus"
	// MetricSourceMetricsServer is the current usage of the node, from metrics.k8s.io.
	MetricSourceMetricsServer MetricSource = "MetricsServer"
	// MetricSourceForecast is the forecast peak of the next hour.
	MetricSourceForecast MetricSource = "Forecast"
)

// PredicatePolicy is a limit of Filter.
type PredicatePolicy struct {
	// Name of the metric.
	Name string `json:"name"`

	// MaxLimitPercent is the limit as a fraction of the node's capacity, from 0 to 1; 0 disables it. The key in the file
	// keeps gocrane's spelling.
	MaxLimitPercent float64 `json:"maxLimitPecent"`
}

// PriorityPolicy is a weight of Score.
type PriorityPolicy struct {
	// Name of the metric.
	Name string `json:"name"`

	// Weight of the metric relative to the others, from 0 up.
	Weight float64 `json:"weight"`
}

// HotValuePolicy configures the penalty of a node for recent placements: one for each count of them within timeRange.
type HotValuePolicy struct {
	// TimeRange is the age up to which placements count, more than 0.
	TimeRange metav1.Duration `json:"timeRange"`

	// Count is the number of placements that make one unit of the hot value, from 1 up.
	Count int64 `json:"count"`
}

// WaterMarks are marks of one resource's use as fractions of the node's capacity: 0 ≤ low < schedule < evict ≤ 1.
type WaterMarks struct {
	// Low is the mark below which a node takes what others have too much of.
	Low float64 `json:"low"`

	// Schedule is the mark above which a node takes no new pod.
	Schedule float64 `json:"schedule"`

	// Evict is the mark above which pods are evicted from a node.
	Evict float64 `json:"evict"`
}
