// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AvoidanceActionStrategy says whether an action is carried out.
//
// +kubebuilder:validation:Enum=None;Preview
type AvoidanceActionStrategy string

// The strategies.
const (
	// AvoidanceActionStrategyNone carries the action out.
	AvoidanceActionStrategyNone AvoidanceActionStrategy = "None"
	// AvoidanceActionStrategyPreview tells of it by an event and does nothing.
	AvoidanceActionStrategyPreview AvoidanceActionStrategy = "Preview"
)

// NodeQOS says when a node is tight and which AvoidanceAction is taken then. All that match a node hold for it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodeqoss,singular=nodeqos,scope=Cluster,shortName=nq
type NodeQOS struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which nodes are meant, when they are tight and what is done.
	Spec NodeQOSSpec `json:"spec"`
	// Status says whether the rules can be used, written by Crane.
	// +optional
	Status NodeQOSStatus `json:"status,omitzero"`
}

// NodeQOSSpec says which nodes are meant, when they are tight and what is done.
type NodeQOSSpec struct {
	// Selector is matched against the labels of nodes. Absent or empty means all nodes.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",fieldPath=".matchExpressions",message="In and NotIn need values, Exists and DoesNotExist have none, and there is no other operator"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// NodeQualityProbe says where metrics come from. Absent means the agent's own measurements.
	// +optional
	NodeQualityProbe *NodeQualityProbe `json:"nodeQualityProbe,omitempty"`

	// Rules say when a node is tight. At most 30; a node may have several NodeQOS.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=30
	Rules []Rule `json:"rules,omitempty"`

	// ElasticCPULimit limits the cpu of pods on reclaimed capacity. gocrane ignored it.
	// +optional
	ElasticCPULimit *ElasticCPULimit `json:"elasticCpuLimit,omitempty"`

	// MemLimit limits the page cache of the node. gocrane ignored it.
	// +optional
	MemLimit *MemLimit `json:"memLimit,omitempty"`

	// MemoryCompression switches the compression of memory on the node. gocrane ignored it.
	// +optional
	MemoryCompression *MemoryCompression `json:"memoryCompression,omitempty"`

	// NetLimits are the bounds of the network rates on the node. gocrane ignored them.
	// +optional
	NetLimits *NetLimits `json:"netLimits,omitempty"`
}

// NodeQualityProbe says where the metrics of a node come from. At most one of httpGet and nodeLocalGet is set.
//
// +kubebuilder:validation:XValidation:rule="!has(self.httpGet) || !has(self.nodeLocalGet)",fieldPath=".httpGet",reason="FieldValueForbidden",message="must not be set together with nodeLocalGet"
type NodeQualityProbe struct {
	// HTTPGet asks an HTTP endpoint. gocrane checked it and ignored it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.path) && size(self.path) > 0",fieldPath=".path",reason="FieldValueRequired",message="the path is required"
	// +kubebuilder:validation:XValidation:rule="!has(self.scheme) || self.scheme in ['HTTP', 'HTTPS']",fieldPath=".scheme",message="must be HTTP or HTTPS"
	// +kubebuilder:validation:XValidation:rule="type(self.port) != int || (int(self.port) >= 1 && int(self.port) <= 65535)",fieldPath=".port",message="must be from 1 to 65535"
	HTTPGet *corev1.HTTPGetAction `json:"httpGet,omitempty"`

	// NodeLocalGet uses the agent's own measurements.
	// +optional
	NodeLocalGet *NodeLocalGet `json:"nodeLocalGet,omitempty"`

	// TimeoutSeconds is the timeout of a request in seconds, from 0 up; 0 means none. gocrane ignored it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// NodeLocalGet uses the agent's own measurements.
type NodeLocalGet struct {
	// LocalCacheTTLSeconds is the age up to which a measurement is used, in seconds, from 0 up. Defaults to 60. gocrane
	// ignored it.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	LocalCacheTTLSeconds *int32 `json:"localCacheTTLSeconds,omitempty"`
}

// Rule says when a node is tight and what is done then.
type Rule struct {
	// Name of the rule, a DNS label, unique in the list.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// MetricRule is the metric and its threshold.
	MetricRule *MetricRule `json:"metricRule"`

	// AvoidanceThreshold is the number of measurements above the threshold after which the rule fires, from 1 up.
	// Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	AvoidanceThreshold *int32 `json:"avoidanceThreshold,omitempty"`

	// RestoreThreshold is the number of measurements in a row, not above the threshold, after which the rule no longer
	// holds, from 1 up. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	RestoreThreshold *int32 `json:"restoreThreshold,omitempty"`

	// AvoidanceActionName is the name of the AvoidanceAction that is taken.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	AvoidanceActionName string `json:"actionName"`

	// Strategy is None (take the action) or Preview (tell of it by an event only). Defaults to None.
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
	// ScheduleTime says when the limit holds.
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
	// RxBpsMin is the least rate of what is received.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RxBpsMin *int64 `json:"rxBpsMin,omitempty"`

	// RxBpsMax is the largest rate of what is received.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RxBpsMax *int64 `json:"rxBpsMax,omitempty"`

	// TxBpsMin is the least rate of what is sent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TxBpsMin *int64 `json:"txBpsMin,omitempty"`

	// TxBpsMax is the largest rate of what is sent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TxBpsMax *int64 `json:"txBpsMax,omitempty"`
}

// NodeQOSStatus says whether the rules can be used.
type NodeQOSStatus struct {
	// Conditions say whether the rules can be used and why not.
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
