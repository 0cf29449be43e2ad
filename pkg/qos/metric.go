// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"strings"
	"time"
)

// Resource is what a metric is an amount of.
type Resource string

// The resources. Of metrics of None it is not known how much of what has to go until they are back below a threshold. Disks have no
// capacity that is known, and nobody's use of them can be limited.
const (
	NoResource Resource = ""
	CPU        Resource = "cpu"
	Memory     Resource = "memory"
	Disks      Resource = "disks"
)

// Metric is a metric that a rule can name.
type Metric struct {
	Name string
	// Unit is for people, such as millicores or percent.
	Unit string
	// Resource is what the node's use is measured of.
	Resource Resource
	// HolderResource is the resource of which pods on reclaimed capacity hold what the metric counts, used or not: nobody else can give any of it back.
	HolderResource Resource
	// Settle is the time that the metric needs to show an action: the span that it averages over.
	Settle time.Duration

	// amount is how much of Of (millicores, bytes) one unit of the metric is; share that the unit is a share of the node's capacity.
	amount float64
	share  bool
	// elasticOnly tells that it counts pods on reclaimed capacity alone, own that each pod has its own series of what it uses itself: who
	// is above the value comes first.
	elasticOnly, perPod bool
}

const (
	milli   = 1000
	percent = 0.01
	// shortSpan is the span of metrics that are measured anew each time.
	shortSpan = 10 * time.Second
	// sampledSpan is that of metrics that are measured seldom.
	sampledSpan = 30 * time.Second
	// cyclesSpan is that of cycles, which are counted for ten seconds of each 45.
	cyclesSpan = time.Minute
)

// Lookup returns the metric of a name, of gocrane or Crane's own, and whether there is one.
func Lookup(name string) (Metric, bool) {
	for _, m := range nodeMetrics() {
		if m.Name == name {
			return m, true
		}
	}
	if interferenceResource(name) != NoResource {
		return Metric{Name: name, Unit: "ratio", Settle: shortSpan}, true
	}
	if span, ok := pressureSpan(name); ok {
		return Metric{Name: name, Unit: "ratio", Settle: span}, true
	}
	return Metric{}, false
}

// nodeMetrics are all but those of pressure. Names and units in the upper half are gocrane's.
func nodeMetrics() []Metric {
	return []Metric{
		{Name: "cpu_total_usage", Unit: "millicores", Resource: CPU, amount: 1, Settle: shortSpan},
		{Name: "cpu_total_utilization", Unit: "percent", Resource: CPU, amount: percent, share: true, Settle: shortSpan},
		{Name: "memory_total_usage", Unit: "bytes", Resource: Memory, amount: 1, Settle: shortSpan},
		{Name: "memory_total_utilization", Unit: "percent", Resource: Memory, amount: percent, share: true, Settle: shortSpan},
		{Name: "cpu_load_1_min", Unit: "threads", Settle: time.Minute},
		{Name: "cpu_load_5_min", Unit: "threads", Settle: 5 * time.Minute},
		{Name: "cpu_load_15_min", Unit: "threads", Settle: 15 * time.Minute},
		{Name: "cpu_core_numbers", Unit: "cores", Settle: shortSpan},
		{Name: "memory_total", Unit: "bytes", Settle: shortSpan},
		{Name: "disk_read_kibps", Unit: "KiB/s", Settle: shortSpan},
		{Name: "disk_write_kibps", Unit: "KiB/s", Settle: shortSpan},
		{Name: "disk_read_iops", Unit: "reads/s", Settle: shortSpan},
		{Name: "disk_read_utilization", Unit: "percent", Settle: shortSpan},
		{Name: "network_receive_kibps", Unit: "kbit/s", Settle: shortSpan},
		{Name: "network_sent_kibps", Unit: "kbit/s", Settle: shortSpan},
		{Name: "network_receive_pckps", Unit: "packets/s", Settle: shortSpan},
		{Name: "network_sent_pckps", Unit: "packets/s", Settle: shortSpan},
		{Name: "network_drop_in", Unit: "packets/s", Settle: shortSpan},
		{Name: "network_drop_out", Unit: "packets/s", Settle: shortSpan},
		{Name: "container_cpu_total_usage", Unit: "cores", perPod: true, Settle: shortSpan},
		{Name: "container_cpu_quota", Unit: "microseconds", Settle: shortSpan},
		{Name: "container_cpu_period", Unit: "microseconds", Settle: shortSpan},
		{Name: "container_mem_total_usage", Unit: "bytes", perPod: true, Settle: shortSpan},
		{Name: "container_cpu_limit", Unit: "shares", Settle: shortSpan},
		{Name: "container_sched_run_queue_time", Unit: "microseconds/s", Settle: sampledSpan},
		{Name: "exclusive_cpu_idle", Unit: "millicores", Settle: shortSpan},
		{Name: "ext_cpu_total_distribute", Unit: "percent", HolderResource: CPU, Settle: shortSpan},
		{Name: "ext_res_container_cpu_total_usage", Unit: "cores", Resource: CPU, amount: milli, elasticOnly: true, Settle: shortSpan},
		{Name: "ext_res_container_mem_total_usage", Unit: "bytes", Resource: Memory, amount: 1, elasticOnly: true, Settle: shortSpan},

		{Name: "node_cpu_usage_cores", Unit: "cores", Resource: CPU, amount: milli, Settle: shortSpan},
		{Name: "node_cpu_usage_ratio", Unit: "ratio", Resource: CPU, amount: 1, share: true, Settle: shortSpan},
		{Name: "node_memory_usage_bytes", Unit: "bytes", Resource: Memory, amount: 1, Settle: shortSpan},
		{Name: "node_memory_usage_ratio", Unit: "ratio", Resource: Memory, amount: 1, share: true, Settle: shortSpan},
		{Name: "node_disk_read_bytes_per_second", Unit: "bytes/s", Settle: shortSpan},
		{Name: "node_disk_write_bytes_per_second", Unit: "bytes/s", Settle: shortSpan},
		{Name: "node_disk_reads_per_second", Unit: "reads/s", Settle: shortSpan},
		{Name: "node_disk_writes_per_second", Unit: "writes/s", Settle: shortSpan},
		{Name: "node_disk_busy_ratio", Unit: "ratio", Settle: shortSpan},
		{Name: "node_network_receive_bytes_per_second", Unit: "bytes/s", Settle: shortSpan},
		{Name: "node_network_transmit_bytes_per_second", Unit: "bytes/s", Settle: shortSpan},
		{Name: "node_elastic_cpu_distributed_ratio", Unit: "ratio", HolderResource: CPU, Settle: shortSpan},
		{Name: "node_elastic_memory_distributed_ratio", Unit: "ratio", HolderResource: Memory, Settle: shortSpan},
		{Name: "node_numa_memory_usage_bytes", Unit: "bytes", Settle: shortSpan},
		{Name: "node_numa_memory_usage_ratio", Unit: "ratio", Settle: shortSpan},
		{Name: "container_cpu_throttled_ratio", Unit: "ratio", Settle: shortSpan},
		{Name: "container_run_queue_wait_ratio", Unit: "ratio", Settle: sampledSpan},
		{Name: "pod_disk_read_bytes_per_second", Unit: "bytes/s", perPod: true, Settle: sampledSpan},
		{Name: "pod_disk_write_bytes_per_second", Unit: "bytes/s", perPod: true, Settle: sampledSpan},
		{Name: "pod_disk_reads_per_second", Unit: "reads/s", perPod: true, Settle: sampledSpan},
		{Name: "pod_disk_writes_per_second", Unit: "writes/s", perPod: true, Settle: sampledSpan},
		{Name: "pod_cycles_per_instruction", Unit: "cycles", Settle: cyclesSpan},
	}
}

// pressureSpan reads names such as node_pressure_memory_some_avg10_ratio and pod_pressure_cpu_full_avg60_ratio.
func pressureSpan(name string) (time.Duration, bool) {
	rest, ok := strings.CutPrefix(name, "node_pressure_")
	if !ok {
		if rest, ok = strings.CutPrefix(name, "pod_pressure_"); !ok {
			return 0, false
		}
	}
	parts := strings.Split(rest, "_")
	if len(parts) != 4 || parts[3] != "ratio" || parts[1] != "some" && parts[1] != "full" {
		return 0, false
	}
	if parts[0] != "cpu" && parts[0] != "memory" && parts[0] != "io" {
		return 0, false
	}
	switch parts[2] {
	case "avg10":
		return 10 * time.Second, true
	case "avg60":
		return time.Minute, true
	}
	return 0, false
}

// victimResource is the resource by whose use victims are ordered. Where pods wait for memory, who has the most of it is in the way.
func (m Metric) victimResource() Resource {
	if m.IsDisk() {
		return Disks
	}
	if m.Resource == Memory || m.HolderResource == Memory || interferenceResource(m.Name) == Memory || strings.Contains(m.Name, "_pressure_memory_") ||
		strings.HasSuffix(m.Name, "container_mem_total_usage") || strings.HasPrefix(m.Name, "node_numa_memory_") {
		return Memory
	}
	return CPU
}

// IsDisk tells whether the metric says what is done to disks, or how long somebody waits for them. Nothing is throttled for it: less
// cpu is not less of a disk.
func (m Metric) IsDisk() bool { return isDisk(m.Name) }

func isDisk(metric string) bool {
	return interferenceResource(metric) == Disks || strings.HasPrefix(metric, "disk_") || strings.HasPrefix(metric, "node_disk_") ||
		strings.HasPrefix(metric, "pod_disk_") || strings.Contains(metric, "_pressure_io_")
}

// NeedsPodDiskUsage tells whether it has to be known for a rule what each pod does to disks: its metric says so, or its victims are ordered by it.
func (r *Rule) NeedsPodDiskUsage() bool {
	return isDisk(r.Metric) && (r.Action.Evict != nil || interferenceResource(r.Metric) == Disks || strings.HasPrefix(r.Metric, "pod_disk_"))
}

// throttles tells whether a rule takes any of a resource from pods.
func (r *Rule) throttles(of Resource) bool {
	return !isDisk(r.Metric) && !notUsage(r.Metric) && r.Action.throttles(of)
}

// NotUsage tells whether the metric says what there is, or what somebody has set, or what is left, and not what is used: nothing that is taken
// from pods lowers it, so that a rule on it keeps new pods away and does nothing else.
func (m Metric) NotUsage() bool { return notUsage(m.Name) }

func notUsage(metric string) bool {
	switch metric {
	case "cpu_core_numbers", "memory_total", "container_cpu_limit", "container_cpu_quota", "container_cpu_period", "exclusive_cpu_idle":
		return true
	}
	return false
}

// MaxValue is the most that the metric can be, infinite where there is no bound: a rule at it or above never fires. What pods hold of elastic
// resources may be more than there is of these by now, and several threads may wait all the time.
func (m Metric) MaxValue() float64 {
	switch {
	case m.HolderResource != NoResource || m.Name == "container_run_queue_wait_ratio":
	case m.Unit == "percent":
		return 1 / percent
	case m.Unit == "ratio":
		return 1
	}
	return math.Inf(1)
}

// IsMemory tells whether a rule on the metric takes memory from pods where its action says so.
func (m Metric) IsMemory() bool { return m.victimResource() == Memory }

// toAmount is how much of the metric's resource a value is: millicores or bytes. It is not known where it is a share of a capacity that
// is not known.
func (m Metric) toAmount(value float64, n Node) (float64, bool) {
	switch {
	case m.Resource == NoResource:
		return 0, false
	case !m.share:
		return value * m.amount, true
	}
	capacity := n.capacity(m.Resource)
	return value * m.amount * capacity, capacity > 0
}
