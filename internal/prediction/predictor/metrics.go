// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"math"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"crane.io/crane/internal/component/seriesguard"
)

// counters are monotonic.
type counters struct {
	histories, refreshes           atomic.Int64
	failedHistories, failedRefresh atomic.Int64
	restored                       atomic.Int64
}

func (c *counters) add(p phase, err error) {
	switch {
	case p == toFetch && err == nil:
		c.histories.Add(1)
	case p == toFetch:
		c.failedHistories.Add(1)
	case p == live && err == nil:
		c.refreshes.Add(1)
	case p == live:
		c.failedRefresh.Add(1)
	}
}

var (
	readsDesc = prometheus.NewDesc("crane_predictor_reads_total",
		"Reads from the source, by kind and result; one read may serve many series.", []string{"kind", "result"}, nil)
	restoredDesc = prometheus.NewDesc("crane_predictor_restored_total", "Requests whose models were restored from a checkpoint.", nil, nil)
	modelsDesc   = prometheus.NewDesc("crane_predictor_models", "Number of series models in memory.", nil, nil)
	staleDesc    = prometheus.NewDesc("crane_predictor_stale_requests", "Number of requests whose newest sample is older than expected.", nil, nil)
	wapeDesc     = prometheus.NewDesc("crane_predictor_wape_ratio",
		"Mean over all requests of the sum of absolute errors of the forecast median over the sum of the samples.", nil, nil)
	coverageDesc = prometheus.NewDesc("crane_predictor_coverage_ratio",
		"Mean over all requests of the share of samples at or below the forecast 0.95 quantile.", nil, nil)
	skillDesc = prometheus.NewDesc("crane_predictor_skill_ratio",
		"Mean over all requests of 1 - loss / loss of a time-of-day quantile, by pinball loss at 0.95.", nil, nil)
	pausedDesc = prometheus.NewDesc("crane_predictor_source_failing", "1 while the source fails and is queried with backoff.", nil, nil)
)

// Describe implements prometheus.Collector.
func (p *Predictor) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		readsDesc, restoredDesc, modelsDesc, staleDesc, pausedDesc, wapeDesc, coverageDesc, skillDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Predictor) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		seriesguard.Send(ch, d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int) {
		seriesguard.Send(ch, d, prometheus.GaugeValue, float64(v))
	}

	counter(readsDesc, p.counts.histories.Load(), "history", "success")
	counter(readsDesc, p.counts.failedHistories.Load(), "history", "failure")
	counter(readsDesc, p.counts.refreshes.Load(), "refresh", "success")
	counter(readsDesc, p.counts.failedRefresh.Load(), "refresh", "failure")
	counter(restoredDesc, p.counts.restored.Load())

	// The locks of entries are taken after that of the predictor is released: they are never held together.
	p.mu.Lock()
	models := p.requested.models
	failing := min(1, p.reads.pauses)

	all := make([]*entry, 0, len(p.requested.entries))
	for _, e := range p.requested.entries {
		all = append(all, e)
	}

	p.mu.Unlock()
	stale := 0
	now := p.config.Clock.Now()
	for _, e := range all {
		if e.status(now, &p.config).Stale {
			stale++
		}
	}

	gauge(modelsDesc, models)
	gauge(staleDesc, stale)
	gauge(pausedDesc, failing)

	overall := p.Overall()
	for d, v := range map[*prometheus.Desc]float64{wapeDesc: overall.WAPE, coverageDesc: overall.Coverage, skillDesc: overall.Skill} {
		if !math.IsNaN(v) {
			seriesguard.Send(ch, d, prometheus.GaugeValue, v)
		}
	}
}
