// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"crane.io/crane/pkg/numa"
)

var (
	activeDesc     = prometheus.NewDesc("crane_agent_cpu_manager_active", "1 if the agent assigns CPUs to containers, else 0.", nil, nil)
	cpusDesc       = prometheus.NewDesc("crane_agent_cpu_manager_cpus", "Number of CPUs by set: exclusive to one container, or shared.", []string{"set"}, nil)
	containersDesc = prometheus.NewDesc("crane_agent_cpu_manager_containers", "Number of containers by state: assigned CPUs by a policy, or refused.", []string{"state"}, nil)
	writesDesc     = prometheus.NewDesc("crane_agent_cpu_manager_writes_total", "Writes of container CPUs by outcome: moved, mended after a change from outside, or failed.", []string{"outcome"}, nil)
)

type counts struct{ moved, corrected, failed atomic.Int64 }

// Describe implements prometheus.Collector.
func (m *Manager) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{activeDesc, cpusDesc, containersDesc, writesDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(to chan<- prometheus.Metric) {
	s := m.Status()
	active := 0.0
	gauge := func(d *prometheus.Desc, value int, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), label)
	}
	if s.Active {
		active = 1
		gauge(cpusDesc, s.Exclusive.Len(), "exclusive")
		gauge(cpusDesc, s.Shared.Len(), "shared")
		gauge(containersDesc, s.Containers, "assigned")
		gauge(containersDesc, s.Refused, "refused")
	}
	to <- prometheus.MustNewConstMetric(activeDesc, prometheus.GaugeValue, active)
	for outcome, n := range map[string]*atomic.Int64{"moved": &m.counts.moved, "mended": &m.counts.corrected, "failed": &m.counts.failed} {
		to <- prometheus.MustNewConstMetric(writesDesc, prometheus.CounterValue, float64(n.Load()), outcome)
	}
}

// ExclusiveCPUs returns the CPUs of single containers, and false while this manager assigns none. It is safe for concurrent use.
func (m *Manager) ExclusiveCPUs() (cpus numa.CPUSet, ok bool) {
	s := m.Status()
	return s.Exclusive, s.Active
}
