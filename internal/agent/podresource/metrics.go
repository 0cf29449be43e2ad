// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podresource

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are for metrics; waiting and limited are of the reconcile that goes on.
type counts struct {
	waiting, limited int

	shared *shared
}

// shared is what scrapes read.
type shared struct {
	mu               sync.Mutex
	waiting, limited int

	writes, errors *prometheus.CounterVec
}

func newCounts() counts {
	return counts{shared: &shared{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_agent_pod_resource_writes_total", Help: "Limits of pods on elastic resources that were written, by what they are of.",
		}, []string{"of"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_craneAgent_pod_resource_error_total", Help: "Limits of pods on elastic resources that could not be written or read.",
		}, []string{"subcomponent", "step"}),
	}}
}

func (c *counts) begin() { c.waiting, c.limited = 0, 0 }

func (c *counts) end() {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	c.shared.waiting, c.shared.limited = c.waiting, c.limited
}

func (c *counts) wrote(aspect string) { c.shared.writes.WithLabelValues(aspect).Inc() }

func (c *counts) failed(aspect string) { c.shared.errors.WithLabelValues(kind, aspect).Inc() }

var containersDesc = prometheus.NewDesc("crane_agent_elastic_containers", "Containers that ask for elastic resources: those whose group is known, and those that have not started.", []string{"state"}, nil)

var _ prometheus.Collector = (*Manager)(nil)

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	ch <- containersDesc
	m.count.shared.writes.Describe(ch)
	m.count.shared.errors.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	s := m.count.shared
	s.mu.Lock()
	waiting, limited := s.waiting, s.limited
	s.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(containersDesc, prometheus.GaugeValue, float64(limited), "known")
	ch <- prometheus.MustNewConstMetric(containersDesc, prometheus.GaugeValue, float64(waiting), "waiting")
	s.writes.Collect(ch)
	s.errors.Collect(ch)
}
