// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AvoidanceActionStrategy determines whether an action is executed.
//
// +kubebuilder:validation:Enum=None;Preview
type AvoidanceActionStrategy string

// The strategies.
const (
	// AvoidanceActionStrategyNone executes the action.
	AvoidanceActionStrategyNone AvoidanceActionStrategy = "None"
	// AvoidanceActionStrategyPreview records an event and does nothing else.
	AvoidanceActionStrategyPreview AvoidanceActionStrategy = "Preview"
)

// NodeQOS configures the thresholds of nodes and the AvoidanceActions to execute above them. All NodeQOS that match a
// node apply to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodeqoss,singular=nodeqos,scope=Cluster,shortName=nq
// +kubebuilder:printcolumn:name="Rule",type=string,JSONPath=`.spec.rules[0].name`,description="The first rule."
// +kubebuilder:printcolumn:name="Metric",type=string,JSONPath=`.spec.rules[0].metricRule.name`,description="The metric of the first rule."
// +kubebuilder:printcolumn:name="Threshold",type=string,JSONPath=`.spec.rules[0].metricRule.value`,description="The threshold of the first rule."
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.rules[0].actionName`,description="The action of the first rule."
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Strategy",type=string,priority=1,JSONPath=`.spec.rules[0].strategy`,description="None executes the action of the first rule, Preview records an event."
type NodeQOS struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec configures the nodes, the thresholds and the actions.
	Spec NodeQOSSpec `json:"spec"`
	// Status is kept for objects of gocrane. Crane does not write it.
	// +optional
	Status NodeQOSStatus `json:"status,omitzero"`
}

// NodeQOSSpec configures the nodes, the thresholds and the actions.
type NodeQOSSpec struct {
	// Selector is matched against the labels of nodes. Absent or empty means all nodes.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",fieldPath=".matchExpressions",message="In and NotIn need values, Exists and DoesNotExist have none, and there is no other operator"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// NodeQualityProbe is the source of metrics. Absent means the agent's own measurements.
	// +optional
	NodeQualityProbe *NodeQualityProbe `json:"nodeQualityProbe,omitempty"`

	// Rules are the thresholds and their actions. At most 30; several NodeQOS may match a node.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=30
	Rules []Rule `json:"rules,omitempty"`

	// ElasticCPULimit limits the cpu of pods on reclaimed capacity. It has no effect, as in gocrane.
	// +optional
	ElasticCPULimit *ElasticCPULimit `json:"elasticCpuLimit,omitempty"`

	// MemLimit limits the page cache of the node. It has no effect, as in gocrane.
	// +optional
	MemLimit *MemLimit `json:"memLimit,omitempty"`

	// MemoryCompression switches the compression of memory on the node. It has no effect, as in gocrane.
	// +optional
	MemoryCompression *MemoryCompression `json:"memoryCompression,omitempty"`

	// NetLimits are the bounds of the network rates on the node. They have no effect, as in gocrane.
	// +optional
	NetLimits *NetLimits `json:"netLimits,omitempty"`
}

// NodeQualityProbe is the source of the metrics of a node. At most one of httpGet and nodeLocalGet is set.
//
// +kubebuilder:validation:XValidation:rule="!has(self.httpGet) || !has(self.nodeLocalGet)",fieldPath=".httpGet",reason="FieldValueForbidden",message="must not be set together with nodeLocalGet"
type NodeQualityProbe struct {
	// HTTPGet is an HTTP endpoint with metrics. It is checked and has no effect, as in gocrane.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.path) && size(self.path) > 0",fieldPath=".path",reason="FieldValueRequired",message="the path is required"
	// +kubebuilder:validation:XValidation:rule="!has(self.scheme) || self.scheme in ['HTTP', 'HTTPS']",fieldPath=".scheme",message="must be HTTP or HTTPS"
	// +kubebuilder:validation:XValidation:rule="type(self.port) != int || (int(self.port) >= 1 && int(self.port) <= 65535)",fieldPath=".port",message="must be from 1 to 65535"
	HTTPGet *corev1.HTTPGetAction `json:"httpGet,omitempty"`

	// NodeLocalGet uses the agent's own measurements.
	// +optional
	NodeLocalGet *NodeLocalGet `json:"nodeLocalGet,omitempty"`

	// TimeoutSeconds is the timeout of a request in seconds, from 0 up; 0 means none. It has no effect, as in gocrane.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// NodeLocalGet uses the agent's own measurements.
type NodeLocalGet struct {
	// LocalCacheTTLSeconds is the maximum age of a measurement, in seconds, from 0 up. Defaults to 60. gocrane
	// ignored it.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	LocalCacheTTLSeconds *int32 `json:"localCacheTTLSeconds,omitempty"`
}

// Rule is a threshold and the action to execute above it.
type Rule struct {
	// Name of the rule, unique in the list: letters, digits, '-', '_' and '.'.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$`
	Name string `json:"name"`

	// MetricRule is the metric and its threshold.
	MetricRule *MetricRule `json:"metricRule"`

	// AvoidanceThreshold is the number of measurements above the threshold after which the rule fires, from 1 up.
	// Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	AvoidanceThreshold *int32 `json:"avoidanceThreshold,omitempty"`

	// RestoreThreshold is the number of consecutive measurements at or below the threshold after which the rule no longer
	// fires, from 1 up. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	RestoreThreshold *int32 `json:"restoreThreshold,omitempty"`

	// AvoidanceActionName is the name of the AvoidanceAction to execute.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	AvoidanceActionName string `json:"actionName"`

	// Strategy is None (execute the action) or Preview (record an event only). Defaults to None.
	// +optional
	// +kubebuilder:default=None
	Strategy AvoidanceActionStrategy `json:"strategy,omitempty"`
}

// MetricRule is a metric and its threshold.
type MetricRule struct {
	// Name of the metric, such as cpu_total_usage (millicores), cpu_total_utilization (percent), memory_total_usage
	// (bytes) or memory_total_utilization (percent).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Selector is matched against the labels of the metric's series, such as PodName, diskName or NetInterface. Absent
	// or empty means all; the rule counts when one of them is above the threshold.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// The rule compares a quantity's first characters: parsing one, whose length has no bound, costs too much in a list.

	// Value is the threshold in the unit of the metric, more than 0. The metric has to be above it.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : self >= '.' && (self < '0' || self >= '1' || (self >= '0.' && self < '0/'))",message="must be more than 0"
	Value resource.Quantity `json:"value"`
}

// ElasticCPULimit limits the cpu of pods on reclaimed capacity.
type ElasticCPULimit struct {
	// ElasticNodeCPULimit limits it for the whole node.
	// +optional
	ElasticNodeCPULimit *ElasticNodeCPULimit `json:"elasticNodeCpuLimit,omitempty"`

	// ElasticCoreCPULimit limits it for cores.
	// +optional
	ElasticCoreCPULimit []ElasticCoreCPULimit `json:"elasticCoreCpuLimit,omitempty"`

	// ElasticCoreCPULimitPeriod limits it for cores at times.
	// +optional
	ElasticCoreCPULimitPeriod []ElasticCoreCPULimitPeriod `json:"elasticCoreCpuLimitPeriod,omitempty"`

	// ElasticCPUAvoidance makes pods on reclaimed capacity yield.
	// +optional
	ElasticCPUAvoidance *ElasticCPUAvoidance `json:"elasticCpuAvoidance,omitempty"`
}

// ElasticNodeCPULimit limits the cpu of pods on reclaimed capacity for the whole node.
type ElasticNodeCPULimit struct {
	// Percent of all cores, from 0 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent int64 `json:"percent,omitempty"`
}

// ElasticCoreCPULimit limits the cpu of pods on reclaimed capacity for some cores.
type ElasticCoreCPULimit struct {
	// CoreNum are the cores, as a list such as 0-3,8.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	CoreNum string `json:"coreNum,omitempty"`

	// Percent of these cores, from 0 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent int64 `json:"percent,omitempty"`
}

// ElasticCoreCPULimitPeriod limits the cpu of pods on reclaimed capacity for some cores at some time.
type ElasticCoreCPULimitPeriod struct {
	// ScheduleTime is the time during which the limit applies.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ScheduleTime string `json:"offlineCpuLimit,omitempty"`

	// CoreNum are the cores, as a list such as 0-3,8.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	CoreNum string `json:"coreNum,omitempty"`

	// Percent of these cores, from 0 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent int64 `json:"percent,omitempty"`
}

// ElasticCPUAvoidance makes pods on reclaimed capacity yield.
type ElasticCPUAvoidance struct {
	// Enable switches it on. Defaults to false.
	// +optional
	Enable bool `json:"enable,omitempty"`
}

// MemLimit limits the page cache of a node.
type MemLimit struct {
	// PageCacheLimitGlobal switches the limit on for the node.
	// +optional
	PageCacheLimitGlobal *bool `json:"pageCacheLimitGlobal,omitempty"`

	// PageCacheLimitRetryTimes is how often reclaiming is tried again, from 0 up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PageCacheLimitRetryTimes *int64 `json:"pageCacheLimitRetryTimes,omitempty"`
}

// MemoryCompression switches the compression of memory.
type MemoryCompression struct {
	// Enable switches it on. Defaults to false.
	// +optional
	Enable bool `json:"enable,omitempty"`
}

// NetLimits are the bounds of the network rates of a node, in bits per second, from 0 up.
//
// +kubebuilder:validation:XValidation:rule="!has(self.rxBpsMin) || !has(self.rxBpsMax) || self.rxBpsMin <= self.rxBpsMax",fieldPath=".rxBpsMin",message="must be at most rxBpsMax"
// +kubebuilder:validation:XValidation:rule="!has(self.txBpsMin) || !has(self.txBpsMax) || self.txBpsMin <= self.txBpsMax",fieldPath=".txBpsMin",message="must be at most txBpsMax"
type NetLimits struct {
	// RxBpsMin is the minimum receive rate.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RxBpsMin *int64 `json:"rxBpsMin,omitempty"`

	// RxBpsMax is the maximum receive rate.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RxBpsMax *int64 `json:"rxBpsMax,omitempty"`

	// TxBpsMin is the minimum send rate.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TxBpsMin *int64 `json:"txBpsMin,omitempty"`

	// TxBpsMax is the maximum send rate.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TxBpsMax *int64 `json:"txBpsMax,omitempty"`
}

// NodeQOSStatus is kept for objects of gocrane. Crane does not write it.
type NodeQOSStatus struct {
	// Conditions are kept for objects of gocrane. Crane does not write them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeQOSList is a list of NodeQOSs.
//
// +kubebuilder:object:root=true
type NodeQOSList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the NodeQOSs of the list.
	Items []NodeQOS `json:"items"`
}
