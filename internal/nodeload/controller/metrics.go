// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"crane.io/crane/internal/component/seriesguard"
	"crane.io/crane/pkg/nodeload"
)

var (
	queriesDesc   = prometheus.NewDesc("crane_nodeload_reads_total", "Reads of a metric for all nodes, one query each, by result.", []string{"metric", "result"}, nil)
	nodesDesc     = prometheus.NewDesc("crane_nodeload_nodes", "Number of nodes by result of the last reading of a metric: ok, or why there is no value.", []string{"metric", "state"}, nil)
	unmatchedDesc = prometheus.NewDesc("crane_nodeload_unmatched_series", "Series of the last reading of a metric that matched no node.", []string{"metric"}, nil)
	undatedDesc   = prometheus.NewDesc("crane_nodeload_undated", "1 if the sample times of a metric are unknown, so that its values expire earlier, else 0.", []string{"metric"}, nil)
	patchesDesc   = prometheus.NewDesc("crane_nodeload_patches_total", "Patches of nodes, by result.", []string{"result"}, nil)
	causesDesc    = prometheus.NewDesc("crane_nodeload_writes_total", "Written values, by cause.", []string{"cause"}, nil)
	taintedDesc   = prometheus.NewDesc("crane_nodeload_tainted_nodes", "Nodes with a load above --node-load-taint-above.", nil, nil)
	roundsDesc    = prometheus.NewDesc("crane_nodeload_rounds_total", "Rounds.", nil, nil)
	durationDesc  = prometheus.NewDesc("crane_nodeload_last_round_duration_seconds", "Duration of the last round.", nil, nil)
)

// stateOK is the state of a node that has a value.
const stateOK = "ok"

// Metrics counts reads, writes and problems. It is a prometheus.Collector.
type Metrics struct {
	mu       sync.Mutex
	rounds   float64
	duration time.Duration
	taints   int
	queries  map[[2]string]float64
	patches  map[string]float64
	causes   map[nodeload.Cause]float64
	last     map[string]outcome
}

// outcome is the result of the last reading of a metric.
type outcome struct {
	counts    map[problem]int
	unmatched int
	undated   bool
}

// NewMetrics returns metrics without counts.
func NewMetrics() *Metrics {
	return &Metrics{
		queries: map[[2]string]float64{},
		patches: map[string]float64{},
		causes:  map[nodeload.Cause]float64{},
		last:    map[string]outcome{},
	}
}

func (m *Metrics) round(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.rounds++
	m.duration = took
}

func (m *Metrics) queried(metric, result string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.queries[[2]string{metric, result}]++
	if result == "failed" {
		delete(m.last, metric)
	}
}

func (m *Metrics) recordReading(metric string, counts map[problem]int, unmatched int) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.last[metric] = outcome{counts: counts, unmatched: unmatched}
}

func (m *Metrics) undated(metric string, undated bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if o, ok := m.last[metric]; ok {
		o.undated = undated
		m.last[metric] = o
	}
}

func (m *Metrics) tainted(nodes int) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.taints = nodes
}

func (m *Metrics) patched(result string, causes []nodeload.Cause) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.patches[result]++
	for _, c := range causes {
		m.causes[c]++
	}
}

// retain drops the series of metrics that are not in the policy.
func (m *Metrics) retain(list []nodeload.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()

	maps.DeleteFunc(m.last, func(name string, _ outcome) bool { return !named(list, name) })
	maps.DeleteFunc(m.queries, func(key [2]string, _ float64) bool { return !named(list, key[0]) })
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{queriesDesc, nodesDesc, unmatchedDesc, undatedDesc, patchesDesc, causesDesc, taintedDesc, roundsDesc, durationDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()

	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		seriesguard.Send(ch, d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		seriesguard.Send(ch, d, prometheus.GaugeValue, v, labels...)
	}
	counter(roundsDesc, m.rounds)
	gauge(durationDesc, m.duration.Seconds())
	gauge(taintedDesc, float64(m.taints))

	for key, n := range m.queries {
		counter(queriesDesc, n, key[0], key[1])
	}

	for result, n := range m.patches {
		counter(patchesDesc, n, result)
	}

	for cause, n := range m.causes {
		counter(causesDesc, n, string(cause))
	}

	// A problem without nodes is exported as 0, so that an alert about it ends.
	for metric, o := range m.last {
		gauge(unmatchedDesc, float64(o.unmatched), metric)
		gauge(undatedDesc, map[bool]float64{true: 1}[o.undated], metric)
		gauge(nodesDesc, float64(o.counts[""]), metric, stateOK)

		for _, p := range problems() {
			gauge(nodesDesc, float64(o.counts[p]), metric, string(p))
		}
	}
}
