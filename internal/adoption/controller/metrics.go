// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of adoption; none has a series for each object.
type Metrics struct {
	resizes, notices *prometheus.CounterVec
	underWay, open   prometheus.GaugeFunc
}

// newMetrics are those of a reconciler.
func newMetrics(underWay, open func() float64) *Metrics {
	return &Metrics{
		resizes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_adoption_resizes_total", Help: "Pods that were to be given another size: resized in place or evicted, overtaken, refused or failed.",
		}, []string{"result"}),
		notices: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_adoption_steps_total", Help: "Steps of adoption by the reason of their event: AdoptionStep, AdoptionRaised, AdoptionRolledBack and so on.",
		}, []string{"reason"}),
		underWay: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "crane_adoption_under_way", Help: "Workloads of which something is being lowered or watched.",
		}, underWay),
		open: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "crane_adoption_breaker_open", Help: "1 while the circuit breaker keeps adoption from going on.",
		}, open),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.resizes, m.notices, m.underWay, m.open} {
		c.Collect(ch)
	}
}

func (m *Metrics) resized(result string) { m.resizes.WithLabelValues(result).Inc() }
func (m *Metrics) told(reason string)    { m.notices.WithLabelValues(reason).Inc() }
