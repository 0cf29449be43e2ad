// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxCPUs bounds the CPUs that node-exporter reports; replayed traces may need nodes with a thousand cores.
	maxCPUs = 32
	// Use of a node's system daemons and kubelet.
	systemCPU    = 0.15
	systemMemory = 600 << 20
	// iowaitShare is the share of iowait in the time that a CPU is not busy.
	iowaitShare = 0.004
)

// machine contains the constant properties of a node.
type machine struct {
	name   string
	cores  float64
	memory float64
	cpus   []string // names of the reported CPUs
}

func machineOf(n *corev1.Node) machine {
	m := machine{
		name:   n.Name,
		cores:  n.Status.Capacity.Cpu().AsApproximateFloat64(),
		memory: n.Status.Capacity.Memory().AsApproximateFloat64(),
	}

	for i := range int(math.Max(1, math.Min(maxCPUs, math.Round(m.cores)))) {
		m.cpus = append(m.cpus, strconv.Itoa(i))
	}

	return m
}

// nodeValues contains the measurements of a node at one time.
type nodeValues struct {
	// elapsed is the time since the counters started in seconds, busy the core seconds of the pods.
	elapsed, busy float64
	// cpu and memory are the pods' current use in cores and bytes.
	cpu, memory float64
}

// nodeMetric is a metric of a node and the function that computes it.
type nodeMetric struct {
	name  string
	value func(m *machine, f *nodeValues) float64
	// mode is set for node_cpu_seconds_total, which has one series for each CPU.
	mode string
	// cadvisor marks metrics of the kubelet; the others are node-exporter's.
	cadvisor bool
}

func nodeMetrics() []nodeMetric {
	return []nodeMetric{
		{name: "node_cpu_seconds_total", mode: "user", value: func(m *machine, f *nodeValues) float64 { return binary(m.busy(f) * fractionOfBusy) }},
		{name: "node_cpu_seconds_total", mode: "system", value: func(m *machine, f *nodeValues) float64 { return binary(m.busy(f) * (1 - fractionOfBusy)) }},
		{name: "node_cpu_seconds_total", mode: "iowait", value: func(m *machine, f *nodeValues) float64 { return binary(m.rest(f) * iowaitShare) }},
		{name: "node_cpu_seconds_total", mode: "idle", value: func(m *machine, f *nodeValues) float64 { return binary(m.rest(f) * (1 - iowaitShare)) }},
		{name: "node_load1", value: func(_ *machine, f *nodeValues) float64 { return math.Round((f.cpu+systemCPU)*128) / 128 }},
		{name: "node_memory_MemAvailable_bytes", value: func(m *machine, f *nodeValues) float64 {
			return math.Max(0, pages(m.memory-systemMemory-f.memory))
		}},
		{name: "node_memory_MemTotal_bytes", value: func(m *machine, _ *nodeValues) float64 { return m.memory }},
		{name: "container_cpu_usage_seconds_total", cadvisor: true, value: func(_ *machine, f *nodeValues) float64 {
			return binary(f.busy + systemCPU*f.elapsed)
		}},
		{name: "container_memory_working_set_bytes", cadvisor: true, value: func(_ *machine, f *nodeValues) float64 {
			return pages(f.memory + systemMemory)
		}},
		{name: "machine_cpu_cores", cadvisor: true, value: func(m *machine, _ *nodeValues) float64 { return m.cores }},
		{name: "machine_memory_bytes", cadvisor: true, value: func(m *machine, _ *nodeValues) float64 { return m.memory }},
	}
}

// busy returns the busy seconds of one CPU. The work of the pods is spread evenly over all CPUs.
func (m *machine) busy(f *nodeValues) float64 {
	return math.Min(f.elapsed, (f.busy+systemCPU*f.elapsed)/m.cores)
}

func (m *machine) rest(f *nodeValues) float64 { return f.elapsed - m.busy(f) }

// eachSeries calls emit with the labels of every series of a metric of the node.
func (m *machine) eachSeries(metric nodeMetric, emit func(name string, pairs ...string)) {
	switch {
	case metric.mode != "":
		for _, cpu := range m.cpus {
			emit(metric.name, "job", JobNode, "instance", m.name+nodePort, "cpu", cpu, "mode", metric.mode)
		}
	case !metric.cadvisor:
		emit(metric.name, "job", JobNode, "instance", m.name+nodePort)
	case metric.name == "machine_cpu_cores" || metric.name == "machine_memory_bytes":
		emit(metric.name, kubeletLabels(m.name)...)
	default: // the root cgroup
		emit(metric.name, append(kubeletLabels(m.name), "id", "/")...)
	}
}

// emitScrapes emits the scrape metrics of every target; up is 0 for nodes that are down.
func emitScrapes(to sink, machines []machine, down map[string]bool) {
	emitTarget := func(job, instance string, reachable bool) {
		to("up", boolValue(reachable), "job", job, "instance", instance)
		to("scrape_duration_seconds", scrapeDuration, "job", job, "instance", instance)
	}

	emitTarget(JobState, stateInstance, true)
	for _, m := range machines {
		emitTarget(JobKubelet, m.name, !down[m.name])
		emitTarget(JobNode, m.name+nodePort, !down[m.name])
	}
}
