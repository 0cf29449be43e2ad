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
	observedDesc = newDesc("observed_timestamp_seconds", "Time of the last measurement, in seconds since 1970.")
	problemDesc  = newDesc("observation_problem", "1 for each object that could not be read at the last measurement.", "of")
	podsDesc     = newDesc("observed_pods", "Pods found by the last measurement.")

	nodeCPUsDesc        = newDesc("node_cpus", "Online CPUs.")
	nodeCPUDesc         = newDesc("node_cpu_usage_cores", "CPU use between the last two measurements, in cores.")
	nodeMemoryDesc      = newDesc("node_memory_bytes", "Memory of the node.")
	nodeMemoryUsedDesc  = newDesc("node_memory_usage_bytes", "Memory that is not available to new processes, in bytes.")
	nodeSwappedDesc     = newDesc("node_memory_swapped_bytes", "Memory that is only in swap and returns to memory when used, in bytes.")
	nodeLoadDesc        = newDesc("node_load", "Load average over the given minutes.", "minutes")
	nodeStalledDesc     = newDesc("node_pressure_stalled_seconds_total", "Time in which tasks waited for a resource: some of them, or all (full).", "resource", "kind")
	diskReadDesc        = newDesc("node_disk_read_bytes_per_second", "Bytes read from a disk.", "disk")
	diskWriteDesc       = newDesc("node_disk_write_bytes_per_second", "Bytes written to a disk.", "disk")
	diskReadsDesc       = newDesc("node_disk_reads_per_second", "Reads of a disk.", "disk")
	diskWritesDesc      = newDesc("node_disk_writes_per_second", "Writes of a disk.", "disk")
	diskBusyDesc        = newDesc("node_disk_busy_ratio", "Share of time with a request to the disk in progress.", "disk")
	networkReceiveDesc  = newDesc("node_network_receive_bytes_per_second", "Bytes received by an interface of the host.", "interface")
	networkTransmitDesc = newDesc("node_network_transmit_bytes_per_second", "Bytes sent by an interface of the host.", "interface")

	exclusiveIdleDesc = newDesc("node_exclusive_cpu_idle_cores", "Idle part of the CPUs assigned exclusively to containers, in cores; absent if none are assigned.")
	zoneMemoryDesc    = newDesc("node_numa_memory_bytes", "Memory of a NUMA node.", "zone")
	zoneUsedDesc      = newDesc("node_numa_memory_usage_bytes", "Memory of a NUMA node without free memory and page cache, in bytes.", "zone")

	podQueueDesc      = newPodDesc("run_queue_wait_ratio", "Ratio of the time the sampled threads of a pod waited for a CPU: 2 means two threads that always waited.")
	podThreadsDesc    = newPodDesc("run_queue_threads", "Threads of a pod's containers, at the last sample of run queues.")
	podSampledDesc    = newPodDesc("run_queue_sampled_threads", "Threads of a pod's containers that were sampled.")
	podCPUDesc        = newPodDesc("cpu_usage_cores", "CPU use between the last two measurements, in cores.")
	podThrottledDesc  = newPodDesc("cpu_throttled_ratio", "Share of the pod's periods that its own limit cut short.")
	podLimitDesc      = newPodDesc("cpu_limit_cores", "CPU limit in force, in cores; absent if there is none.")
	podMemoryDesc     = newPodDesc("memory_usage_bytes", "All memory of the pod.")
	podWorkingSetDesc = newPodDesc("memory_working_set_bytes", "Memory of the pod without unused page cache, in bytes.")
	podRSSDesc        = newPodDesc("memory_rss_bytes", "Memory of the pod's processes.")
	podCacheDesc      = newPodDesc("memory_cache_bytes", "Memory of files that the pod has read or written.")
	podDiskReadDesc   = newPodDesc("disk_read_bytes_per_second", "Bytes that the pod read from disks, of the last sample.")
	podDiskWriteDesc  = newPodDesc("disk_write_bytes_per_second", "Bytes that the pod wrote to disks, of the last sample.")
	podDiskReadsDesc  = newPodDesc("disk_reads_per_second", "Reads of disks by the pod, of the last sample.")
	podDiskWritesDesc = newPodDesc("disk_writes_per_second", "Writes to disks by the pod, of the last sample.")
	podCyclesDesc     = newPodDesc("cycles_per_instruction", "CPU cycles that a latency-sensitive pod needed for an instruction, when they were counted last.")
	podStalledDesc    = newPodDesc("pressure_stalled_seconds_total", "Time in which tasks of the pod waited for a resource: some of them, or all (full).", "resource", "kind")
)
