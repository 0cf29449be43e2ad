// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podresource

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// counts holds the counts of the current reconciliation and the metrics.
type counts struct {
	waiting, limited int

	metrics *metrics
}

// metrics holds the values of the last reconciliation.
type metrics struct {
	mu               sync.Mutex
	waiting, limited int

	writes, errors *prometheus.CounterVec
}

func newCounts() counts {
	return counts{metrics: &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_agent_pod_resource_writes_total", Help: "Written limits of pods on elastic resources, by kind of limit.",
		}, []string{"of"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_craneAgent_pod_resource_error_total", Help: "Limits of pods on elastic resources that could not be read or written.",
		}, []string{"subcomponent", "step"}),
	}}
}

func (c *counts) reset() { c.waiting, c.limited = 0, 0 }

func (c *counts) publish() {
	c.metrics.mu.Lock()
	defer c.metrics.mu.Unlock()
	c.metrics.waiting, c.metrics.limited = c.waiting, c.limited
}

func (c *counts) wrote(aspect string) { c.metrics.writes.WithLabelValues(aspect).Inc() }

func (c *counts) failed(aspect string) { c.metrics.errors.WithLabelValues(kind, aspect).Inc() }

var containersDesc = prometheus.NewDesc("crane_agent_elastic_containers", "Containers that request elastic resources by state: known cgroup, or waiting for their start.", []string{"state"}, nil)

var _ prometheus.Collector = (*Manager)(nil)

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	ch <- containersDesc
	m.counts.metrics.writes.Describe(ch)
	m.counts.metrics.errors.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	s := m.counts.metrics
	s.mu.Lock()
	waiting, limited := s.waiting, s.limited
	s.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(containersDesc, prometheus.GaugeValue, float64(limited), "known")
	ch <- prometheus.MustNewConstMetric(containersDesc, prometheus.GaugeValue, float64(waiting), "waiting")
	s.writes.Collect(ch)
	s.errors.Collect(ch)
}
