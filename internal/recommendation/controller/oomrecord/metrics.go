// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oomrecord

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"crane.io/crane/pkg/oom"
)

// Metrics counts kills under gocrane's metric name. The series of a pod are deleted with it.
type Metrics struct {
	count   *prometheus.CounterVec
	records prometheus.Gauge
	// overflowed, failures and unreadable count the errors of the recorder.
	overflowed, failures, unreadable prometheus.Counter

	mu sync.Mutex
	// pods are the pods with series; the value is set once the current list includes the pod.
	pods map[podName]bool
}

type podName struct{ namespace, name string }

// NewMetrics returns metrics without series.
func NewMetrics() *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}

	return &Metrics{
		// Dashboards of gocrane use this name.
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_autoscaling_oom_count", Help: "Containers killed or evicted for lack of memory since this craned became the leader.",
		}, []string{"namespace", "pod", "container"}),
		records:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "crane_oom_records", Help: "Number of OOM kills in the ledger."}),
		overflowed: counter("crane_oom_queue_overflows_total", "Overflows of the queue of kills, after which all pods are listed again."),
		failures:   counter("crane_oom_write_failures_total", "Failed writes of the ledger, which are retried."),
		unreadable: counter("crane_oom_unreadable_records_total", "Records that could not be read and were moved to another ConfigMap."),
		pods:       map[podName]bool{},
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.count, m.records, m.overflowed, m.failures, m.unreadable}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

func (m *Metrics) countKill(k oom.Kill) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.pods[podName{k.Namespace, k.Pod}] = true
	m.count.WithLabelValues(k.Namespace, k.Pod, k.Container).Inc()
}

// beginListing starts a list, markListed marks a pod of the list, and dropUnlisted deletes the series of all others.
func (m *Metrics) beginListing() {
	m.mu.Lock()
	defer m.mu.Unlock()

	for p := range m.pods {
		m.pods[p] = false
	}
}

func (m *Metrics) markListed(namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if _, counted := m.pods[podName{namespace, name}]; counted {
		m.pods[podName{namespace, name}] = true
	}
}

func (m *Metrics) dropUnlisted() {
	m.mu.Lock()
	defer m.mu.Unlock()

	for p, listed := range m.pods {
		if !listed {
			m.drop(p)
		}
	}
}

func (m *Metrics) dropPod(namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if p := (podName{namespace, name}); hasKey(m.pods, p) {
		m.drop(p)
	}
}

func hasKey(m map[podName]bool, p podName) bool {
	_, ok := m[p]
	return ok
}

func (m *Metrics) drop(p podName) {
	delete(m.pods, p)
	m.count.DeletePartialMatch(prometheus.Labels{"namespace": p.namespace, "pod": p.name})
}
