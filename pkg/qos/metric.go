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
	None   Resource = ""
	CPU    Resource = "cpu"
	Memory Resource = "memory"
	Disks  Resource = "disks"
)

// Metric is a metric that a rule can name.
type Metric struct {
	Name string
	// Unit is for people, such as millicores or percent.
	Unit string
	// Of is what the node's use is measured of.
	Of Resource
	// Held is the resource of which pods on reclaimed capacity hold what the metric counts, used or not: nobody else can give any of it back.
	Held Resource
	// Settle is the time that the metric needs to show an action: the span that it averages over.
	Settle time.Duration

	// amount is how much of Of (millicores, bytes) one unit of the metric is; share that the unit is a share of the node's capacity.
	amount float64
	share  bool
	// elastic tells that it counts pods on reclaimed capacity alone, own that each pod has its own series of what it uses itself: who
	// is above the value comes first.
	elastic, own bool
}

const (
	milli   = 1000
	percent = 0.01
	// briefly is the span of metrics that are measured anew each time.
	briefly = 10 * time.Second
	// sampled is that of metrics that are measured seldom.
	sampled = 30 * time.Second
	// counted is that of cycles, which are counted for ten seconds of each 45.
	counted = time.Minute
)

// Lookup returns the metric of a name, of gocrane or Crane's own, and whether there is one.
func Lookup(name string) (Metric, bool) {
	for _, m := range nodeMetrics() {
		if m.Name == name {
			return m, true
		}
	}
	if interferes(name) != None {
		return Metric{Name: name, Unit: "ratio", Settle: briefly}, true
	}
	if span, ok := pressureSpan(name); ok {
		return Metric{Name: name, Unit: "ratio", Settle: span}, true
	}
	return Metric{}, false
}

// nodeMetrics are all but those of pressure. Names and units in the upper half are gocrane's.
func nodeMetrics() []Metric {
	return []Metric{
		{Name: "cpu_total_usage", Unit: "millicores", Of: CPU, amount: 1, Settle: briefly},
		{Name: "cpu_total_utilization", Unit: "percent", Of: CPU, amount: percent, share: true, Settle: briefly},
		{Name: "memory_total_usage", Unit: "bytes", Of: Memory, amount: 1, Settle: briefly},
		{Name: "memory_total_utilization", Unit: "percent", Of: Memory, amount: percent, share: true, Settle: briefly},
		{Name: "cpu_load_1_min", Unit: "threads", Settle: time.Minute},
		{Name: "cpu_load_5_min", Unit: "threads", Settle: 5 * time.Minute},
		{Name: "cpu_load_15_min", Unit: "threads", Settle: 15 * time.Minute},
		{Name: "cpu_core_numbers", Unit: "cores", Settle: briefly},
		{Name: "memory_total", Unit: "bytes", Settle: briefly},
		{Name: "disk_read_kibps", Unit: "KiB/s", Settle: briefly},
		{Name: "disk_write_kibps", Unit: "KiB/s", Settle: briefly},
		{Name: "disk_read_iops", Unit: "reads/s", Settle: briefly},
		{Name: "disk_read_utilization", Unit: "percent", Settle: briefly},
		{Name: "network_receive_kibps", Unit: "kbit/s", Settle: briefly},
		{Name: "network_sent_kibps", Unit: "kbit/s", Settle: briefly},
		{Name: "network_receive_pckps", Unit: "packets/s", Settle: briefly},
		{Name: "network_sent_pckps", Unit: "packets/s", Settle: briefly},
		{Name: "network_drop_in", Unit: "packets/s", Settle: briefly},
		{Name: "network_drop_out", Unit: "packets/s", Settle: briefly},
		{Name: "container_cpu_total_usage", Unit: "cores", own: true, Settle: briefly},
		{Name: "container_cpu_quota", Unit: "microseconds", Settle: briefly},
		{Name: "container_cpu_period", Unit: "microseconds", Settle: briefly},
		{Name: "container_mem_total_usage", Unit: "bytes", own: true, Settle: briefly},
		{Name: "container_cpu_limit", Unit: "shares", Settle: briefly},
		{Name: "container_sched_run_queue_time", Unit: "microseconds/s", Settle: sampled},
		{Name: "exclusive_cpu_idle", Unit: "millicores", Settle: briefly},
		{Name: "ext_cpu_total_distribute", Unit: "percent", Held: CPU, Settle: briefly},
		{Name: "ext_res_container_cpu_total_usage", Unit: "cores", Of: CPU, amount: milli, elastic: true, Settle: briefly},
		{Name: "ext_res_container_mem_total_usage", Unit: "bytes", Of: Memory, amount: 1, elastic: true, Settle: briefly},

		{Name: "node_cpu_usage_cores", Unit: "cores", Of: CPU, amount: milli, Settle: briefly},
		{Name: "node_cpu_usage_ratio", Unit: "ratio", Of: CPU, amount: 1, share: true, Settle: briefly},
		{Name: "node_memory_usage_bytes", Unit: "bytes", Of: Memory, amount: 1, Settle: briefly},
		{Name: "node_memory_usage_ratio", Unit: "ratio", Of: Memory, amount: 1, share: true, Settle: briefly},
		{Name: "node_disk_read_bytes_per_second", Unit: "bytes/s", Settle: briefly},
		{Name: "node_disk_write_bytes_per_second", Unit: "bytes/s", Settle: briefly},
		{Name: "node_disk_reads_per_second", Unit: "reads/s", Settle: briefly},
		{Name: "node_disk_writes_per_second", Unit: "writes/s", Settle: briefly},
		{Name: "node_disk_busy_ratio", Unit: "ratio", Settle: briefly},
		{Name: "node_network_receive_bytes_per_second", Unit: "bytes/s", Settle: briefly},
		{Name: "node_network_transmit_bytes_per_second", Unit: "bytes/s", Settle: briefly},
		{Name: "node_elastic_cpu_distributed_ratio", Unit: "ratio", Held: CPU, Settle: briefly},
		{Name: "node_elastic_memory_distributed_ratio", Unit: "ratio", Held: Memory, Settle: briefly},
		{Name: "node_numa_memory_usage_bytes", Unit: "bytes", Settle: briefly},
		{Name: "node_numa_memory_usage_ratio", Unit: "ratio", Settle: briefly},
		{Name: "container_cpu_throttled_ratio", Unit: "ratio", Settle: briefly},
		{Name: "container_run_queue_wait_ratio", Unit: "ratio", Settle: sampled},
		{Name: "pod_disk_read_bytes_per_second", Unit: "bytes/s", own: true, Settle: sampled},
		{Name: "pod_disk_write_bytes_per_second", Unit: "bytes/s", own: true, Settle: sampled},
		{Name: "pod_disk_reads_per_second", Unit: "reads/s", own: true, Settle: sampled},
		{Name: "pod_disk_writes_per_second", Unit: "writes/s", own: true, Settle: sampled},
		{Name: "pod_cycles_per_instruction", Unit: "cycles", Settle: counted},
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

// victims is the resource by whose use victims are ordered. Where pods wait for memory, who has the most of it is in the way.
func (m Metric) victims() Resource {
	if m.AboutDisks() {
		return Disks
	}
	if m.Of == Memory || m.Held == Memory || interferes(m.Name) == Memory || strings.Contains(m.Name, "_pressure_memory_") ||
		strings.HasSuffix(m.Name, "container_mem_total_usage") || strings.HasPrefix(m.Name, "node_numa_memory_") {
		return Memory
	}
	return CPU
}

// AboutDisks tells whether the metric says what is done to disks, or how long somebody waits for them. Nothing is throttled for it: less
// cpu is not less of a disk.
func (m Metric) AboutDisks() bool { return aboutDisks(m.Name) }

func aboutDisks(metric string) bool {
	return interferes(metric) == Disks || strings.HasPrefix(metric, "disk_") || strings.HasPrefix(metric, "node_disk_") ||
		strings.HasPrefix(metric, "pod_disk_") || strings.Contains(metric, "_pressure_io_")
}

// ByPodDisks tells whether it has to be known for a rule what each pod does to disks: its metric says so, or its victims are ordered by it.
func (r *Rule) ByPodDisks() bool {
	return aboutDisks(r.Metric) && (r.Action.Evict != nil || interferes(r.Metric) == Disks || strings.HasPrefix(r.Metric, "pod_disk_"))
}

// takes tells whether a rule takes any of a resource from pods.
func (r *Rule) takes(of Resource) bool {
	return !aboutDisks(r.Metric) && !given(r.Metric) && r.Action.takes(of)
}

// Given tells whether the metric says what there is, or what somebody has set, or what is left, and not what is used: nothing that is taken
// from pods lowers it, so that a rule on it keeps new pods away and does nothing else.
func (m Metric) Given() bool { return given(m.Name) }

func given(metric string) bool {
	switch metric {
	case "cpu_core_numbers", "memory_total", "container_cpu_limit", "container_cpu_quota", "container_cpu_period", "exclusive_cpu_idle":
		return true
	}
	return false
}

// Most is the most that the metric can be, infinite where there is no bound: a rule at it or above never fires. What pods hold of elastic
// resources may be more than there is of these by now, and several threads may wait all the time.
func (m Metric) Most() float64 {
	switch {
	case m.Held != None || m.Name == "container_run_queue_wait_ratio":
	case m.Unit == "percent":
		return 1 / percent
	case m.Unit == "ratio":
		return 1
	}
	return math.Inf(1)
}

// AboutMemory tells whether a rule on the metric takes memory from pods where its action says so.
func (m Metric) AboutMemory() bool { return m.victims() == Memory }

// amountOf is how much of the metric's resource a value is: millicores or bytes. It is not known where it is a share of a capacity that
// is not known.
func (m Metric) amountOf(value float64, n Node) (float64, bool) {
	switch {
	case m.Of == None:
		return 0, false
	case !m.share:
		return value * m.amount, true
	}
	capacity := n.capacity(m.Of)
	return value * m.amount * capacity, capacity > 0
}
