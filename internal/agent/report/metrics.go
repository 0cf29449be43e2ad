// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// gocrane's subcomponents and steps.
const (
	schedule = "schedule"
	throttle = "throttle"
	evict    = "evict"
	avoid    = "avoid"
	restore  = "restore"
)

// Types of gocrane's analyzer; the last one ends in a blank there, too.
const (
	typeScheduling = "enableScheduling"
	typeAvoidance  = "avoidance"
	typeRestore    = "restore"
	typeError      = "analyzeError "
)

// metrics are the reporter's metrics. Those starting with crane_craneAgent_ have gocrane's names and labels; the others use base units.
type metrics struct {
	analyzer         *prometheus.GaugeVec
	analyzed         *prometheus.CounterVec
	executor         *prometheus.GaugeVec
	executed, failed *prometheus.CounterVec
	evicted          prometheus.Counter

	actions, previews          *prometheus.CounterVec
	firing, gapCores, gapBytes *prometheus.GaugeVec
	previewCores, previewBytes *prometheus.GaugeVec
	withheld                   *prometheus.CounterVec
	suppressed                 prometheus.Counter
}

func newMetrics() *metrics {
	key := []string{"key", "type"}
	step := []string{"subcomponent", "step"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}

	return &metrics{
		analyzer: gauge("crane_craneAgent_analyzer_status", "1 if the last evaluation of a rule had this result.", key...),
		analyzed: counter("crane_craneAgent_analyzer_status_total", "How often a rule began to fire (avoidance) and ended (restore).", key...),
		executor: gauge("crane_craneAgent_executor_status", "1 if the last executed plan throttles, evicts or taints (avoid) or restores (restore) by this.", step...),
		executed: counter("crane_craneAgent_executor_status_total", "Executed actions.", step...),
		failed:   counter("crane_craneAgent_executor_error_total", "Actions that failed.", step...),
		evicted:  prometheus.NewCounter(prometheus.CounterOpts{Name: "crane_craneAgent_executor_evict_total", Help: "Evicted pods."}),

		actions:      counter("crane_agent_actions_total", "Actions by outcome; would is one that --enforce does not name, counted once while its rule fires.", "action", "outcome"),
		previews:     counter("crane_agent_preview_actions_total", "Actions that rules in preview would take, each counted once while its rule fires.", "rule", "action"),
		firing:       gauge("crane_agent_rule_firing", "1 while a rule has fired and has not ended.", "rule", "preview"),
		gapCores:     gauge("crane_agent_rule_gap_cores", "CPU to release until a firing rule is below its threshold, in cores.", "rule"),
		gapBytes:     gauge("crane_agent_rule_gap_bytes", "Memory to release until a firing rule is below its threshold, in bytes.", "rule"),
		previewCores: gauge("crane_agent_preview_freed_cores", "CPU that the last plan of a rule in preview would release, in cores.", "rule"),
		previewBytes: gauge("crane_agent_preview_freed_bytes", "Memory that the last plan of a rule in preview would release, in bytes.", "rule"),
		withheld:     counter("crane_agent_evictions_withheld_total", "Number of times that a firing rule began to evict no pods or too few, by reason.", "rule", "by"),
		suppressed:   prometheus.NewCounter(prometheus.CounterOpts{Name: "crane_agent_events_suppressed_total", Help: "Events that were not written because one of the same kind and object was within a minute."}),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.analyzer, m.analyzed, m.executor, m.executed, m.failed, m.evicted, m.actions, m.previews, m.firing, m.gapCores, m.gapBytes,
		m.previewCores, m.previewBytes, m.withheld, m.suppressed,
	}
}

// keyOf returns gocrane's name of a rule.
func keyOf(rule string) string { return strings.Replace(rule, "/", ".", 1) }

// removeRule removes the series of a deleted rule.
func (m *metrics) removeRule(rule string) {
	labels := prometheus.Labels{"rule": rule}
	for _, v := range []interface{ DeletePartialMatch(l prometheus.Labels) int }{
		m.previews, m.firing, m.gapCores, m.gapBytes, m.previewCores, m.previewBytes, m.withheld,
	} {
		v.DeletePartialMatch(labels)
	}

	m.analyzer.DeletePartialMatch(prometheus.Labels{"key": keyOf(rule)})
	m.analyzed.DeletePartialMatch(prometheus.Labels{"key": keyOf(rule)})
}

// setRule sets the metrics of a rule's state.
func (m *metrics) setRule(key string, f *qos.Finding, fires bool) {
	m.analyzer.WithLabelValues(key, typeAvoidance).Set(boolValue(f.Phase == qos.Firing))
	m.analyzer.WithLabelValues(key, typeRestore).Set(boolValue(!fires))
	m.analyzer.WithLabelValues(key, typeError).Set(boolValue(f.Phase == qos.Unknown || f.Phase == qos.Held))

	// A rule may become a preview or change its resource.
	m.firing.DeleteLabelValues(f.Rule, strconv.FormatBool(!f.Preview))
	m.firing.WithLabelValues(f.Rule, strconv.FormatBool(f.Preview)).Set(boolValue(fires))

	gap := max(f.Gap-f.PendingRelease, 0)
	if f.Phase != qos.Firing {
		gap = 0
	}

	if f.Resource == units.CPU {
		m.gapCores.WithLabelValues(f.Rule).Set(gap / milli)
	} else {
		m.gapCores.DeleteLabelValues(f.Rule)
	}

	if f.Resource == units.Memory {
		m.gapBytes.WithLabelValues(f.Rule).Set(gap)
	} else {
		m.gapBytes.DeleteLabelValues(f.Rule)
	}
}

// countAction counts an action by its outcome.
func (m *metrics) countAction(a *Action) {
	m.actions.WithLabelValues(string(a.Kind), string(a.Outcome)).Inc()
	part, step := a.Kind.executorLabels()
	if part == "" {
		return
	}

	switch a.Outcome {
	case Done:
		m.executed.WithLabelValues(part, step).Inc()
		if a.Kind == Evict {
			m.evicted.Inc()
		}

	case Failed, Refused:
		m.failed.WithLabelValues(part, step).Inc()
	case NotEnforced, Previewed, Withheld, Gone:
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}

	return 0
}

// milli is the number of millicores of a core.
const milli = 1000
