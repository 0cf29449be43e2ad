// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts the changes of adoption. None has a series per object.
type Metrics struct {
	resizes, events *prometheus.CounterVec
	underWay        prometheus.GaugeFunc
	// breakersOpen are those of namespaces and of the cluster.
	breakersOpen [2]prometheus.GaugeFunc
}

// newMetrics returns the metrics of a reconciler.
func newMetrics(underWay func() float64, breakerOpen func(ofCluster bool) float64) *Metrics {
	breaker := func(scope string, ofCluster bool) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "crane_adoption_breaker_open", Help: "1 while the circuit breaker of a namespace, or that of the cluster, keeps adoption from going on.",
			ConstLabels: prometheus.Labels{"scope": scope},
		}, func() float64 { return breakerOpen(ofCluster) })
	}

	return &Metrics{
		resizes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_adoption_resizes_total", Help: "Planned size changes of pods by outcome: resized in place, evicted, overtaken, refused or failed.",
		}, []string{"result"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_adoption_steps_total", Help: "Steps of adoption by the reason of their event: AdoptionStep, AdoptionRaised, AdoptionRolledBack and so on.",
		}, []string{"reason"}),
		underWay: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "crane_adoption_under_way", Help: "Workloads of which something is being lowered or watched.",
		}, underWay),
		breakersOpen: [2]prometheus.GaugeFunc{breaker("namespace", false), breaker("cluster", true)},
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.resizes, m.events, m.underWay, m.breakersOpen[0], m.breakersOpen[1]} {
		c.Collect(ch)
	}
}

func (m *Metrics) countResize(result string) { m.resizes.WithLabelValues(result).Inc() }
func (m *Metrics) countEvent(reason string)  { m.events.WithLabelValues(reason).Inc() }
