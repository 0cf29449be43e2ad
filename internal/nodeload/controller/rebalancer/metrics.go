// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	roundsDesc = prometheus.NewDesc("crane_rebalance_rounds_total", "Rounds, by result.", []string{"result"}, nil)
	nodesDesc  = prometheus.NewDesc("crane_rebalance_hot_nodes", "Number of nodes above the mark evict: now, and for long enough to move pods.", []string{"state"}, nil)
	movesDesc  = prometheus.NewDesc("crane_rebalance_moves_total", "Pods selected to leave a hot node, by result and resource.", []string{"result", "resource"}, nil)
)

// Metrics counts moves, refusals and hot nodes. It is a prometheus.Collector.
type Metrics struct {
	mu     sync.Mutex
	rounds map[string]float64
	above  int
	due    int
	moves  map[[2]string]float64
}

// NewMetrics returns metrics without counts.
func NewMetrics() *Metrics {
	return &Metrics{rounds: map[string]float64{}, moves: map[[2]string]float64{}}
}

func (m *Metrics) round(err error) {
	result := "succeeded"
	if err != nil {
		result = "failed"
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.rounds[result]++
}

func (m *Metrics) hot(above, due int) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.above = above
	m.due = due
}

func (m *Metrics) moved(result, resource string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.moves[[2]string{result, resource}]++
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- roundsDesc
	ch <- nodesDesc
	ch <- movesDesc
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()

	for result, n := range m.rounds {
		ch <- prometheus.MustNewConstMetric(roundsDesc, prometheus.CounterValue, n, result)
	}

	ch <- prometheus.MustNewConstMetric(nodesDesc, prometheus.GaugeValue, float64(m.above), "now")
	ch <- prometheus.MustNewConstMetric(nodesDesc, prometheus.GaugeValue, float64(m.due), "long enough")

	for key, n := range m.moves {
		ch <- prometheus.MustNewConstMetric(movesDesc, prometheus.CounterValue, n, key[0], key[1])
	}
}
