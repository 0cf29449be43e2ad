// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podresource

import "github.com/prometheus/client_golang/prometheus"

// metrics holds the metrics of a Manager.
type metrics struct {
	containers     *prometheus.GaugeVec
	writes, errors *prometheus.CounterVec
}

func newMetrics() metrics {
	m := metrics{
		containers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "crane_agent_elastic_containers", Help: "Containers that request elastic resources by state: known cgroup, or waiting for their start.",
		}, []string{"state"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_agent_pod_resource_writes_total", Help: "Written limits of pods on elastic resources, by kind of limit.",
		}, []string{"of"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_craneAgent_pod_resource_error_total", Help: "Limits of pods on elastic resources that could not be read or written.",
		}, []string{"subcomponent", "step"}),
	}
	m.setContainers(containerCounts{})
	return m
}

// containerCounts holds the numbers of containers with and without a cgroup.
type containerCounts struct{ known, waiting int }

func (m metrics) setContainers(c containerCounts) {
	m.containers.WithLabelValues("known").Set(float64(c.known))
	m.containers.WithLabelValues("waiting").Set(float64(c.waiting))
}

func (m metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.containers, m.writes, m.errors}
}

var _ prometheus.Collector = (*Manager)(nil)

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.metrics.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.metrics.all() {
		c.Collect(ch)
	}
}
