// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"math"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
)

// Values of a metric's resource beside CPU and memory. NoResource marks metrics that do not determine how much has to be released. Disks have no
// known capacity, and their use cannot be limited.
const (
	NoResource units.Resource = ""
	Disks      units.Resource = "disks"
)

// Metric describes a metric that a rule can name.
type Metric struct {
	Name string
	// Unit is the unit in messages, such as millicores or percent.
	Unit string
	// Resource is the resource whose use the metric measures; NoResource if it measures no amount.
	Resource units.Resource
	// HolderResource is the reclaimed resource whose reservations the metric counts, used or not: only evicting their holders lowers it.
	HolderResource units.Resource
	// Settle is the time the metric needs to show the effect of an action: the span it averages over.
	Settle time.Duration

	// Victims is the criterion that orders victims of rules on the metric; empty for ByCPU. Busy time and waiting time of disks cannot be
	// split by pod, so DiskWork, their cause, is used.
	Victims Criterion
	// NotUsage reports that the metric measures a capacity, a setting or idle resources instead of use: no action on pods lowers it, so a
	// rule on it only keeps new pods away.
	NotUsage bool

	// amount is the amount of Resource, in millicores or bytes, of one unit of the metric; share reports that the unit is a share of the
	// node's capacity.
	amount float64
	share  bool
	// elasticOnly reports that the metric counts only pods on reclaimed capacity, perPod that each pod has its own series of its own use,
	// so that pods above the threshold go first.
	elasticOnly, perPod bool
	// unbounded reports that a ratio can exceed 1.
	unbounded bool
}

const (
	milli   = 1000
	percent = 0.01
	// shortSpan is the span of metrics measured at every interval.
	shortSpan = 10 * time.Second
	// sampledSpan is the span of metrics measured less often.
	sampledSpan = 30 * time.Second
	// cyclesSpan is the span of cycles, which are counted for 10 of every 45 seconds.
	cyclesSpan = time.Minute
)

// Lookup returns the metric of a name, gocrane's or Crane's own, and whether it exists.
func Lookup(name string) (Metric, bool) {
	for _, m := range nodeMetrics() {
		if m.Name == name {
			return m, true
		}
	}

	if resource := interferenceResource(name); resource != NoResource {
		return Metric{
			Name:    name,
			Unit:    "ratio",
			Settle:  shortSpan,
			Victims: criterionOf(resource),
		}, true
	}

	return pressureMetric(name)
}

// nodeMetrics lists all metrics except those of pressure and interference. Names and units of the first half are gocrane's.
func nodeMetrics() []Metric {
	return []Metric{
		{Name: "cpu_total_usage", Unit: "millicores", Resource: units.CPU, amount: 1, Settle: shortSpan},
		{Name: "cpu_total_utilization", Unit: "percent", Resource: units.CPU, amount: percent, share: true, Settle: shortSpan},
		{Name: "memory_total_usage", Victims: ByMemory, Unit: "bytes", Resource: units.Memory, amount: 1, Settle: shortSpan},
		{Name: "memory_total_utilization", Victims: ByMemory, Unit: "percent", Resource: units.Memory, amount: percent, share: true, Settle: shortSpan},
		{Name: "cpu_load_1_min", Unit: "threads", Settle: time.Minute},
		{Name: "cpu_load_5_min", Unit: "threads", Settle: 5 * time.Minute},
		{Name: "cpu_load_15_min", Unit: "threads", Settle: 15 * time.Minute},
		{Name: "cpu_core_numbers", NotUsage: true, Unit: "cores", Settle: shortSpan},
		{Name: "memory_total", NotUsage: true, Unit: "bytes", Settle: shortSpan},
		{Name: "disk_read_kibps", Victims: ByDiskReadBytes, Unit: "KiB/s", Settle: shortSpan},
		{Name: "disk_write_kibps", Victims: ByDiskWriteBytes, Unit: "KiB/s", Settle: shortSpan},
		{Name: "disk_read_iops", Victims: ByDiskReads, Unit: "reads/s", Settle: shortSpan},
		{Name: "disk_read_utilization", Victims: ByDiskWork, Unit: "percent", Settle: shortSpan},
		{Name: "network_receive_kibps", Unit: "kbit/s", Settle: shortSpan},
		{Name: "network_sent_kibps", Unit: "kbit/s", Settle: shortSpan},
		{Name: "network_receive_pckps", Unit: "packets/s", Settle: shortSpan},
		{Name: "network_sent_pckps", Unit: "packets/s", Settle: shortSpan},
		{Name: "network_drop_in", Unit: "packets/s", Settle: shortSpan},
		{Name: "network_drop_out", Unit: "packets/s", Settle: shortSpan},
		{Name: "container_cpu_total_usage", Unit: "cores", perPod: true, Settle: shortSpan},
		{Name: "container_cpu_quota", NotUsage: true, Unit: "microseconds", Settle: shortSpan},
		{Name: "container_cpu_period", NotUsage: true, Unit: "microseconds", Settle: shortSpan},
		{Name: "container_mem_total_usage", Victims: ByMemory, Unit: "bytes", perPod: true, Settle: shortSpan},
		{Name: "container_cpu_limit", NotUsage: true, Unit: "shares", Settle: shortSpan},
		{Name: "container_sched_run_queue_time", Unit: "microseconds/s", Settle: sampledSpan},
		{Name: "exclusive_cpu_idle", NotUsage: true, Unit: "millicores", Settle: shortSpan},
		{Name: "ext_cpu_total_distribute", Unit: "percent", HolderResource: units.CPU, Settle: shortSpan},
		{Name: "ext_res_container_cpu_total_usage", Unit: "cores", Resource: units.CPU, amount: milli, elasticOnly: true, Settle: shortSpan},
		{Name: "ext_res_container_mem_total_usage", Victims: ByMemory, Unit: "bytes", Resource: units.Memory, amount: 1, elasticOnly: true, Settle: shortSpan},

		{Name: "node_cpu_usage_cores", Unit: "cores", Resource: units.CPU, amount: milli, Settle: shortSpan},
		{Name: "node_cpu_usage_ratio", Unit: "ratio", Resource: units.CPU, amount: 1, share: true, Settle: shortSpan},
		{Name: "node_memory_usage_bytes", Victims: ByMemory, Unit: "bytes", Resource: units.Memory, amount: 1, Settle: shortSpan},
		{Name: "node_memory_usage_ratio", Victims: ByMemory, Unit: "ratio", Resource: units.Memory, amount: 1, share: true, Settle: shortSpan},
		{Name: "node_disk_read_bytes_per_second", Victims: ByDiskReadBytes, Unit: "bytes/s", Settle: shortSpan},
		{Name: "node_disk_write_bytes_per_second", Victims: ByDiskWriteBytes, Unit: "bytes/s", Settle: shortSpan},
		{Name: "node_disk_reads_per_second", Victims: ByDiskReads, Unit: "reads/s", Settle: shortSpan},
		{Name: "node_disk_writes_per_second", Victims: ByDiskWrites, Unit: "writes/s", Settle: shortSpan},
		{Name: "node_disk_busy_ratio", Victims: ByDiskWork, Unit: "ratio", Settle: shortSpan},
		{Name: "node_network_receive_bytes_per_second", Unit: "bytes/s", Settle: shortSpan},
		{Name: "node_network_transmit_bytes_per_second", Unit: "bytes/s", Settle: shortSpan},
		{Name: "node_elastic_cpu_distributed_ratio", Unit: "ratio", HolderResource: units.CPU, Settle: shortSpan},
		{Name: "node_elastic_memory_distributed_ratio", Victims: ByMemory, Unit: "ratio", HolderResource: units.Memory, Settle: shortSpan},
		{Name: "node_numa_memory_usage_bytes", Victims: ByMemory, Unit: "bytes", Settle: shortSpan},
		{Name: "node_numa_memory_usage_ratio", Victims: ByMemory, Unit: "ratio", Settle: shortSpan},
		{Name: "container_cpu_throttled_ratio", Unit: "ratio", Settle: shortSpan},
		{Name: "container_run_queue_wait_ratio", unbounded: true, Unit: "ratio", Settle: sampledSpan},
		{Name: "pod_disk_read_bytes_per_second", Victims: ByDiskReadBytes, Unit: "bytes/s", perPod: true, Settle: sampledSpan},
		{Name: "pod_disk_write_bytes_per_second", Victims: ByDiskWriteBytes, Unit: "bytes/s", perPod: true, Settle: sampledSpan},
		{Name: "pod_disk_reads_per_second", Victims: ByDiskReads, Unit: "reads/s", perPod: true, Settle: sampledSpan},
		{Name: "pod_disk_writes_per_second", Victims: ByDiskWrites, Unit: "writes/s", perPod: true, Settle: sampledSpan},
		{Name: "pod_cycles_per_instruction", Unit: "cycles", Settle: cyclesSpan},
	}
}

// criterionOf returns the criterion that orders victims by their use of a resource.
func criterionOf(r units.Resource) Criterion {
	switch r {
	case units.Memory:
		return ByMemory
	case Disks:
		return ByDiskWork
	case units.CPU, NoResource:
	}

	return ByCPU
}

// pressureMetric parses names such as node_pressure_memory_some_avg10_ratio and pod_pressure_cpu_full_avg60_ratio.
func pressureMetric(name string) (Metric, bool) {
	spans := map[string]time.Duration{"avg10": 10 * time.Second, "avg60": time.Minute}
	resources := map[string]units.Resource{"cpu": units.CPU, "memory": units.Memory, "io": Disks}

	parts := strings.Split(name, "_")
	if len(parts) != 6 || parts[0] != "node" && parts[0] != "pod" || parts[1] != "pressure" || parts[3] != "some" && parts[3] != "full" || parts[5] != "ratio" {
		return Metric{}, false
	}

	resource := resources[parts[2]]
	span := spans[parts[4]]
	if resource == NoResource || span == 0 {
		return Metric{}, false
	}

	return Metric{
		Name:    name,
		Unit:    "ratio",
		Settle:  span,
		Victims: criterionOf(resource),
	}, true
}

// victimCriterion returns the criterion that orders victims.
func (m Metric) victimCriterion() Criterion { return cmp.Or(m.Victims, ByCPU) }

// IsDisk reports whether the metric measures disk use or waiting for disks. Nothing is throttled for it: less CPU does not free a disk.
func (m Metric) IsDisk() bool { return m.Victims.resource() == Disks && m.Victims != "" }

// IsMemory reports whether rules on the metric can throttle memory. When pods stall for memory, the largest user is evicted first.
func (m Metric) IsMemory() bool { return m.Victims == ByMemory }

// NeedsPodDiskUsage reports whether the rule needs the disk use of each pod, for its metric or for the order of its victims.
func (r *Rule) NeedsPodDiskUsage() bool {
	metric, _ := Lookup(r.Metric)
	return metric.IsDisk() && (r.Action.Evict != nil || metric.perPod || interferenceResource(r.Metric) == Disks)
}

// throttled reports whether an action on the metric throttles a resource.
func (m Metric) throttled(a *Action, resource units.Resource) bool {
	return !m.IsDisk() && !m.NotUsage && a.throttles(resource)
}

// MaxValue returns the largest value of the metric, infinite if unbounded: a rule at or above it never fires. Reservations of reclaimed
// capacity can exceed 100 %, and several threads may wait at the same time.
func (m Metric) MaxValue() float64 {
	switch {
	case m.HolderResource != NoResource || m.unbounded:
	case m.Unit == "percent":
		return 1 / percent
	case m.Unit == "ratio":
		return 1
	}

	return math.Inf(1)
}

// toAmount converts a value to millicores or bytes; false if that needs an unknown capacity.
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
