// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// What the agent leaves on a Node that is tight.
const (
	// TaintKey is the key of the taint, with the effect PreferNoSchedule and no value.
	TaintKey = "interference.crane.io"
	// ConditionInterferenceIdentified is the type of the Node's condition.
	ConditionInterferenceIdentified = "interference-identified"
)

// Annotations of a Node: how much of it is kept from being offered again, as a percentage such as 40%.
const (
	// AnnotationReserveCPU is the share of cpu.
	AnnotationReserveCPU = "reserve.node.gocrane.io/cpu"
	// AnnotationReserveMemory is the share of memory.
	AnnotationReserveMemory = "reserve.node.gocrane.io/memory"
)

// AnnotationAgentFeatures is the annotation of a Node with the features of its agent: a JSON object from the name of a feature to its
// state, such as "on", "off: reason" or "unsupported: reason".
const AnnotationAgentFeatures = "ensurance.crane.io/agent-features"

// AnnotationElasticResources is the annotation of a Node with the reclaimed capacity that the agent offers, as JSON: each term of the
// formula by resource, and the time.
const AnnotationElasticResources = "ensurance.crane.io/elastic-resources"

// AnnotationPredecessor is the annotation of a Node on which gocrane's agent ran and from which a migration removed its marks. The agent
// restores the CPU quotas that were left on the host, then removes the annotation. Its value is PredecessorGocrane.
const AnnotationPredecessor = "ensurance.crane.io/predecessor"

// PredecessorGocrane is the value of AnnotationPredecessor.
const PredecessorGocrane = "gocrane"

// The extended resources of a Node that hold reclaimed capacity.
const (
	// ResourceReclaimedCPU is in cores.
	ResourceReclaimedCPU = "gocrane.io/cpu"
	// ResourceReclaimedMemory is in bytes.
	ResourceReclaimedMemory = "gocrane.io/memory"
)

// Reasons of events on a Node.
const (
	// ReasonAvoidanceTriggered is the reason when a rule has fired.
	ReasonAvoidanceTriggered = "AvoidanceTriggered"
	// ReasonRestoreTriggered is the reason when a rule no longer fires.
	ReasonRestoreTriggered = "RestoreTriggered"
	// ReasonUpdateNode is the reason when the amount of reclaimed capacity changes.
	ReasonUpdateNode = "UpdateNode"
)

// Metrics of a node that a rule can name.
const (
	// MetricCPUTotalUsage is in millicores: 4000 are 4 cores.
	MetricCPUTotalUsage = "cpu_total_usage"
	// MetricCPUTotalUtilization is in percent of all cores.
	MetricCPUTotalUtilization = "cpu_total_utilization"
	// MetricCPULoad1Min is the load average of one minute.
	MetricCPULoad1Min = "cpu_load_1_min"
	// MetricCPULoad5Min is the load average of five minutes.
	MetricCPULoad5Min = "cpu_load_5_min"
	// MetricCPULoad15Min is the load average of fifteen minutes.
	MetricCPULoad15Min = "cpu_load_15_min"
	// MetricCPUCoreNumbers is the number of cores.
	MetricCPUCoreNumbers = "cpu_core_numbers"
	// MetricExclusiveCPUIdle is the idle CPU of exclusive cores, in millicores.
	MetricExclusiveCPUIdle = "exclusive_cpu_idle"
	// MetricMemoryTotalUsage is in bytes.
	MetricMemoryTotalUsage = "memory_total_usage"
	// MetricMemoryTotalUtilization is in percent of all memory.
	MetricMemoryTotalUtilization = "memory_total_utilization"
	// MetricMemoryTotal is the memory of the node in bytes.
	MetricMemoryTotal = "memory_total"
)

// Metrics of a disk (label diskName) or a network interface (label NetInterface) that a rule can name.
const (
	// MetricDiskReadKiBps is in KiB/s.
	MetricDiskReadKiBps = "disk_read_kibps"
	// MetricDiskWriteKiBps is in KiB/s.
	MetricDiskWriteKiBps = "disk_write_kibps"
	// MetricDiskReadIOPS is in reads per second.
	MetricDiskReadIOPS = "disk_read_iops"
	// MetricDiskReadUtilization is the share of time in which the disk is busy, in percent.
	MetricDiskReadUtilization = "disk_read_utilization"
	// MetricNetworkReceiveKiBps is in kilobits per second, despite its name.
	MetricNetworkReceiveKiBps = "network_receive_kibps"
	// MetricNetworkSentKiBps is in kilobits per second, despite its name.
	MetricNetworkSentKiBps = "network_sent_kibps"
	// MetricNetworkReceivePackets is in packets per second.
	MetricNetworkReceivePackets = "network_receive_pckps"
	// MetricNetworkSentPackets is in packets per second.
	MetricNetworkSentPackets = "network_sent_pckps"
	// MetricNetworkDropIn is in packets per second.
	MetricNetworkDropIn = "network_drop_in"
	// MetricNetworkDropOut is in packets per second.
	MetricNetworkDropOut = "network_drop_out"
)

// Metrics of containers that a rule can name, and of all that use reclaimed capacity together. Those of containers have
// the labels LabelMetricPodName and following.
const (
	// MetricContainerCPUTotalUsage is in cores.
	MetricContainerCPUTotalUsage = "container_cpu_total_usage"
	// MetricContainerCPULimit is the cpu shares of the container.
	MetricContainerCPULimit = "container_cpu_limit"
	// MetricContainerCPUQuota is in microseconds for each period; 0 or -1 is unlimited.
	MetricContainerCPUQuota = "container_cpu_quota"
	// MetricContainerCPUPeriod is in microseconds.
	MetricContainerCPUPeriod = "container_cpu_period"
	// MetricContainerSchedRunQueueTime is the time waiting for a core, in microseconds per second.
	MetricContainerSchedRunQueueTime = "container_sched_run_queue_time"
	// MetricContainerMemTotalUsage is the working set in bytes.
	MetricContainerMemTotalUsage = "container_mem_total_usage"
	// MetricExtResContainerCPUTotalUsage is the use by containers on reclaimed capacity, in cores.
	MetricExtResContainerCPUTotalUsage = "ext_res_container_cpu_total_usage"
	// MetricExtResContainerMemTotalUsage is the use by containers on reclaimed capacity, in bytes.
	MetricExtResContainerMemTotalUsage = "ext_res_container_mem_total_usage"
	// MetricExtCPUTotalDistribute is the share of the reclaimed cpu that is requested, in percent.
	MetricExtCPUTotalDistribute = "ext_cpu_total_distribute"
)

// Labels of the metrics, for metricRule.selector.
const (
	// LabelMetricPodName is the name of the pod.
	LabelMetricPodName = "PodName"
	// LabelMetricPodNamespace is the namespace of the pod.
	LabelMetricPodNamespace = "PodNamespace"
	// LabelMetricPodUID is the UID of the pod.
	LabelMetricPodUID = "PodUid"
	// LabelMetricContainerName is the name of the container, empty for the pod as a whole.
	LabelMetricContainerName = "ContainerName"
	// LabelMetricContainerID is the id of the container, empty for the pod as a whole.
	LabelMetricContainerID = "ContainerId"
	// LabelMetricHasExtRes is "true" for pods on reclaimed capacity, else "false".
	LabelMetricHasExtRes = "HasExtRes"
	// LabelMetricDiskName is the name of the disk.
	LabelMetricDiskName = "diskName"
	// LabelMetricNetInterface is the name of the network interface.
	LabelMetricNetInterface = "NetInterface"
)
