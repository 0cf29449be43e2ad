// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package usagemetrics

import "github.com/prometheus/client_golang/prometheus"

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("crane_agent_"+name, help, labels, nil)
}

func newPodDesc(name, help string, labels ...string) *prometheus.Desc {
	return newDesc("pod_"+name, help, append([]string{"namespace", "pod", "uid"}, labels...)...)
}

var (
	observedDesc = newDesc("observed_timestamp_seconds", "When the node was looked at last.")
	problemDesc  = newDesc("observation_problem", "1 for each thing that could not be read at the last look.", "of")
	podsDesc     = newDesc("observed_pods", "Pods that the last look found.")

	nodeCPUsDesc        = newDesc("node_cpus", "CPUs that are online.")
	nodeCPUDesc         = newDesc("node_cpu_usage_cores", "CPU used between the last two looks.")
	nodeMemoryDesc      = newDesc("node_memory_bytes", "Memory of the node.")
	nodeMemoryUsedDesc  = newDesc("node_memory_usage_bytes", "Memory that is not available to new processes.")
	nodeSwappedDesc     = newDesc("node_memory_swapped_bytes", "What is in swap alone and comes back into memory when it is needed.")
	nodeLoadDesc        = newDesc("node_load", "Load average by the minutes that it is of.", "minutes")
	nodeStalledDesc     = newDesc("node_pressure_stalled_seconds_total", "Time in which tasks waited for a resource: some of them, or all (full).", "resource", "kind")
	diskReadDesc        = newDesc("node_disk_read_bytes_per_second", "Bytes read from a disk.", "disk")
	diskWriteDesc       = newDesc("node_disk_write_bytes_per_second", "Bytes written to a disk.", "disk")
	diskReadsDesc       = newDesc("node_disk_reads_per_second", "Reads of a disk.", "disk")
	diskWritesDesc      = newDesc("node_disk_writes_per_second", "Writes of a disk.", "disk")
	diskBusyDesc        = newDesc("node_disk_busy_ratio", "Share of time with a request to the disk in progress.", "disk")
	networkReceiveDesc  = newDesc("node_network_receive_bytes_per_second", "Bytes received by an interface of the host.", "interface")
	networkTransmitDesc = newDesc("node_network_transmit_bytes_per_second", "Bytes sent by an interface of the host.", "interface")

	exclusiveIdleDesc = newDesc("node_exclusive_cpu_idle_cores", "What is idle of the CPUs that belong to containers alone; absent where nobody gives them any.")
	zoneMemoryDesc    = newDesc("node_numa_memory_bytes", "Memory of a NUMA node.", "zone")
	zoneUsedDesc      = newDesc("node_numa_memory_usage_bytes", "Memory of a NUMA node that is neither free nor of files.", "zone")

	podQueueDesc      = newPodDesc("run_queue_wait_ratio", "Time that the sampled threads of a pod waited for a CPU, by time: 2 are two that waited all the time.")
	podThreadsDesc    = newPodDesc("run_queue_threads", "Threads of a pod's containers, at the last sample of run queues.")
	podSampledDesc    = newPodDesc("run_queue_sampled_threads", "Threads of a pod's containers that were sampled.")
	podCPUDesc        = newPodDesc("cpu_usage_cores", "CPU used between the last two looks.")
	podThrottledDesc  = newPodDesc("cpu_throttled_ratio", "Share of the periods in which the pod ran that its own limit ended early.")
	podLimitDesc      = newPodDesc("cpu_limit_cores", "Limit of cpu in force; absent where there is none.")
	podMemoryDesc     = newPodDesc("memory_usage_bytes", "All memory of the pod.")
	podWorkingSetDesc = newPodDesc("memory_working_set_bytes", "Memory of the pod without files that nobody has used for a while.")
	podRSSDesc        = newPodDesc("memory_rss_bytes", "Memory of the pod's processes.")
	podCacheDesc      = newPodDesc("memory_cache_bytes", "Memory of files that the pod has read or written.")
	podDiskReadDesc   = newPodDesc("disk_read_bytes_per_second", "Bytes that the pod read from disks, of the last sample.")
	podDiskWriteDesc  = newPodDesc("disk_write_bytes_per_second", "Bytes that the pod wrote to disks, of the last sample.")
	podDiskReadsDesc  = newPodDesc("disk_reads_per_second", "Reads of disks by the pod, of the last sample.")
	podDiskWritesDesc = newPodDesc("disk_writes_per_second", "Writes to disks by the pod, of the last sample.")
	podCyclesDesc     = newPodDesc("cycles_per_instruction", "CPU cycles that a latency-sensitive pod needed for an instruction, when they were counted last.")
	podStalledDesc    = newPodDesc("pressure_stalled_seconds_total", "Time in which tasks of the pod waited for a resource: some of them, or all (full).", "resource", "kind")
)
