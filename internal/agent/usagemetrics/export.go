// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package usagemetrics

import (
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/observe"
)

// maxSnapshotAge is the largest age of an exported snapshot, so that series end if the loop hangs.
const maxSnapshotAge = time.Minute

// Config configures a Collector.
type Config struct {
	// Latest holds the latest snapshot.
	Latest *observe.Latest
	// Pods returns the node's pods for their names; nil if unknown.
	Pods  func() []*corev1.Pod
	Clock clock.PassiveClock
}

// Collector exports the latest snapshot: about thirty series for the node and its devices, and up to 18 per pod, 21 with run queues, for
// at most 1000 pods. It is safe for concurrent use.
type Collector struct{ config Config }

var _ prometheus.Collector = (*Collector)(nil)

// New returns a collector to be registered once.
func New(config Config) *Collector { return &Collector{config: config} }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		observedDesc, problemDesc, podsDesc, nodeCPUsDesc, nodeCPUDesc, nodeMemoryDesc, nodeMemoryUsedDesc, nodeSwappedDesc, nodeLoadDesc, nodeStalledDesc,
		diskReadDesc, diskWriteDesc, diskReadsDesc, diskWritesDesc, diskBusyDesc, networkReceiveDesc, networkTransmitDesc,
		exclusiveIdleDesc, zoneMemoryDesc, zoneUsedDesc, podQueueDesc, podThreadsDesc, podSampledDesc,
		podCPUDesc, podThrottledDesc, podLimitDesc, podMemoryDesc, podWorkingSetDesc, podRSSDesc, podCacheDesc, podStalledDesc,
		podDiskReadDesc, podDiskWriteDesc, podDiskReadsDesc, podDiskWritesDesc, podCyclesDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.config.Latest.Load()
	if s == nil {
		return
	}

	out := sink{ch}
	out.gauge(observedDesc, float64(s.At.UnixMilli())/1000)

	if age := c.config.Clock.Since(s.At); age > maxSnapshotAge {
		return
	}

	out.gauge(podsDesc, float64(len(s.Pods)))
	for subject := range s.Problems {
		out.gauge(problemDesc, 1, subject)
	}

	out.node(&s.Node)
	out.devices(s)
	c.pods(out, s)
}

// sink sends metrics.
type sink struct{ ch chan<- prometheus.Metric }

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.send(d, prometheus.GaugeValue, v, labels)
}

func (s sink) send(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels []string) {
	for i, l := range labels {
		if !utf8.ValidString(l) {
			labels[i] = strconv.QuoteToASCII(l) // Interface names may contain nearly any byte.
		}
	}

	s.ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
}

func (s sink) node(n *observe.Node) {
	// Values that are unknown have no series.
	if n.CPUs.OK {
		s.gauge(nodeCPUsDesc, float64(n.CPUs.Value))
	}
	if n.UsedCPU.OK {
		s.gauge(nodeCPUDesc, cores(float64(n.UsedCPU.Value)))
	}

	if n.Memory.OK {
		s.gauge(nodeMemoryDesc, float64(n.Memory.Value.Total))
		s.gauge(nodeMemoryUsedDesc, float64(n.Memory.Value.Total-n.Memory.Value.Available))
		s.gauge(nodeSwappedDesc, float64(n.Memory.Value.SwappedOut))
	}

	if n.Load.OK {
		for i, minutes := range [...]string{"1", "5", "15"} {
			s.gauge(nodeLoadDesc, n.Load.Value[i], minutes)
		}
	}

	s.stalled(nodeStalledDesc, n.Pressure)
	if n.ExclusiveIdle.OK {
		s.gauge(exclusiveIdleDesc, cores(float64(n.ExclusiveIdle.Value)))
	}

	for i := range n.Zones {
		if z := &n.Zones[i]; z.Memory.OK {
			name := topologyv1alpha1.ZoneNamePrefix + strconv.Itoa(z.ID)
			s.gauge(zoneMemoryDesc, float64(z.Memory.Value.Total), name)
			s.gauge(zoneUsedDesc, float64(z.Memory.Value.Used()), name)
		}
	}
}

func cores(milli float64) float64 { return milli / 1000 }

func (s sink) stalled(d *prometheus.Desc, p observe.Pressures, labels ...string) {
	p.Each(func(resource string, v host.Pressure) {
		s.send(d, prometheus.CounterValue, v.Some.Total.Seconds(), slices.Concat(labels, []string{resource, "some"}))
		s.send(d, prometheus.CounterValue, v.Full.Total.Seconds(), slices.Concat(labels, []string{resource, "full"}))
	})
}

func (s sink) devices(snapshot *observe.Snapshot) {
	for i := range snapshot.Disks {
		d := &snapshot.Disks[i]
		if !d.Rate.OK {
			continue
		}

		r := d.Rate.Value
		s.gauge(diskReadDesc, r.ReadBytes, d.Name)
		s.gauge(diskWriteDesc, r.WriteBytes, d.Name)
		s.gauge(diskReadsDesc, r.Reads, d.Name)
		s.gauge(diskWritesDesc, r.Writes, d.Name)
		s.gauge(diskBusyDesc, float64(r.Busy), d.Name)
	}

	for i := range snapshot.Interfaces {
		if f := &snapshot.Interfaces[i]; f.Rate.OK {
			s.gauge(networkReceiveDesc, f.Rate.Value.ReceivedBytes, f.Name)
			s.gauge(networkTransmitDesc, f.Rate.Value.SentBytes, f.Name)
		}
	}
}

func (c *Collector) pods(out sink, s *observe.Snapshot) {
	names := map[string]*corev1.Pod{}
	if c.config.Pods != nil {
		list := c.config.Pods()
		for i, uid := range inventory.UIDs(list) {
			names[uid] = list[i]
		}
	}

	for i := range s.Pods {
		p := &s.Pods[i]
		if i > 0 && s.Pods[i-1].UID == p.UID {
			continue // Pods are ordered by UID; two cgroups of one pod would duplicate its series.
		}

		labels := []string{"", "", p.UID}
		if pod := names[p.UID]; pod != nil {
			labels[0] = pod.Namespace
			labels[1] = pod.Name
		}

		out.pod(p, labels)
	}
}

func (s sink) pod(p *observe.Pod, labels []string) {
	// Values that are unknown have no series.
	if p.UsedCPU.OK {
		s.gauge(podCPUDesc, cores(float64(p.UsedCPU.Value)), labels...)
	}
	if p.Throttled.OK {
		s.gauge(podThrottledDesc, float64(p.Throttled.Value), labels...)
	}
	if p.Limit.OK && !p.Limit.Value.Unlimited() {
		s.gauge(podLimitDesc, p.Limit.Value.Cores(), labels...)
	}

	if m := p.Memory; m.OK {
		s.gauge(podMemoryDesc, float64(m.Value.Used), labels...)
		s.gauge(podWorkingSetDesc, float64(m.Value.WorkingSet), labels...)
		s.gauge(podRSSDesc, float64(m.Value.RSS), labels...)
		s.gauge(podCacheDesc, float64(m.Value.Cache), labels...)
	}

	s.stalled(podStalledDesc, p.Pressure, labels...)
	if c := p.Cycles; c.OK {
		s.gauge(podCyclesDesc, c.Value.PerInstruction, labels...)
	}

	if t := p.DiskIO; t.OK {
		s.gauge(podDiskReadDesc, t.Value.ReadBytes, labels...)
		s.gauge(podDiskWriteDesc, t.Value.WriteBytes, labels...)
		s.gauge(podDiskReadsDesc, t.Value.Reads, labels...)
		s.gauge(podDiskWritesDesc, t.Value.Writes, labels...)
	}

	if q := p.RunQueue(); q.OK {
		s.gauge(podQueueDesc, q.Value.Waiting, labels...)
		s.gauge(podThreadsDesc, float64(q.Value.Threads), labels...)
		s.gauge(podSampledDesc, float64(q.Value.Sampled), labels...)
	}
}

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
