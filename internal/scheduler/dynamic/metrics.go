// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"slices"

	"k8s.io/component-base/metrics"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// Metrics are the metrics of the plugins of all profiles. Labels are bounded: profiles and metrics come from files,
// others from fixed sets. A series is created at its first use.
type Metrics struct {
	attempts    *metrics.CounterVec
	abstentions *metrics.CounterVec
	closures    *metrics.CounterVec
	passed      *metrics.CounterVec
	unreadable  *metrics.CounterVec
	nodes       *metrics.GaugeVec
	metricNodes *metrics.GaugeVec
	onWay       *metrics.GaugeVec
	share       *metrics.GaugeVec
	workloads   *metrics.Gauge
	noEvent     *metrics.Counter
}

// NewMetrics returns unregistered metrics.
func NewMetrics() *Metrics {
	// All vectors have the same prefix and stability.
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace:      "crane",
			Subsystem:      "scheduler_dynamic",
			Name:           name,
			Help:           help,
			StabilityLevel: metrics.ALPHA,
		}, labels)
	}

	gauge := func(name, help string, labels ...string) *metrics.GaugeVec {
		return metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace:      "crane",
			Subsystem:      "scheduler_dynamic",
			Name:           name,
			Help:           help,
			StabilityLevel: metrics.ALPHA,
		}, labels)
	}

	return &Metrics{
		attempts:    counter("attempts_total", "Attempts to place a pod, by the source of its estimated usage.", "profile", "estimate"),
		abstentions: counter("abstentions_total", "Attempts in which the plugin abstained, because too few nodes reported their load.", "profile"),
		closures:    counter("closed_nodes_total", "Nodes closed for a pod, by the metric whose limit they would have exceeded.", "profile", "metric"),
		passed:      counter("passed_unknown_nodes_total", "Nodes let pass although a metric of a limit was not fresh on them.", "profile"),
		unreadable:  counter("unreadable_annotations_total", "Unreadable annotations of nodes, by cause.", "profile", "fault"),
		nodes:       gauge("nodes", "Nodes by the state of their reported load.", "profile", "state"),
		metricNodes: gauge("metric_fresh_nodes", "Nodes on which a metric of the policy is fresh.", "profile", "metric"),
		onWay:       gauge("pods_on_way", "Pods that count with an estimate, because the load of their node does not hold all of them yet, or still holds them after their end.", "profile"),
		share:       gauge("used_share", "Used share of requests, as learned from the nodes and applied to pods without a history.", "profile", "resource"),
		workloads: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace:      "crane",
			Subsystem:      "scheduler_dynamic",
			Name:           "workloads_with_history",
			StabilityLevel: metrics.ALPHA,
			Help:           "Workloads whose usage is known from a recommendation.",
		}),
		noEvent: metrics.NewCounter(&metrics.CounterOpts{
			Namespace:      "crane",
			Subsystem:      "scheduler_dynamic",
			Name:           "suppressed_events_total",
			StabilityLevel: metrics.ALPHA,
			Help:           "Events that were not written, to spare the API server.",
		}),
	}
}

// Register registers all of them.
func (m *Metrics) Register(register func(metrics.Registerable) error) error {
	for _, metric := range []metrics.Registerable{
		m.attempts, m.abstentions, m.closures, m.passed, m.unreadable, m.nodes, m.metricNodes, m.onWay, m.share,
		m.workloads, m.noEvent,
	} {
		if err := register(metric); err != nil {
			return err
		}
	}

	return nil
}

// profileMetrics are the metrics of one profile.
type profileMetrics struct {
	*Metrics
	profile string
	unknown metrics.CounterMetric
}

// forProfile returns the metrics of a profile, after Register.
func (m *Metrics) forProfile(profile string) *profileMetrics {
	return &profileMetrics{Metrics: m, profile: profile, unknown: m.passed.WithLabelValues(profile)}
}

func (t *profileMetrics) began(basis nodeload.Basis, abstains bool) {
	t.attempts.WithLabelValues(t.profile, basis.String()).Inc()
	if abstains {
		t.abstentions.WithLabelValues(t.profile).Inc()
	}
}

func (t *profileMetrics) closed(metric string) { t.closures.WithLabelValues(t.profile, metric).Inc() }

func (t *profileMetrics) passedUnknown() { t.unknown.Inc() }

func (t *profileMetrics) annotations(parseErrors nodeload.ParseErrors) {
	for fault, n := range map[string]int{"form": parseErrors.Form, "value": parseErrors.Value, "time": parseErrors.Time} {
		if n > 0 {
			t.unreadable.WithLabelValues(t.profile, fault).Add(float64(n))
		}
	}
}

// recordSnapshot sets the gauges of a snapshot.
func (t *profileMetrics) recordSnapshot(snapshot *fleetSnapshot, onWay int) {
	for _, state := range []nodeload.State{nodeload.Fresh, nodeload.Stale, nodeload.Absent} {
		t.nodes.WithLabelValues(t.profile, state.String()).Set(float64(snapshot.States[state]))
	}

	for i, metric := range snapshot.Rules.Policy.Metrics {
		t.metricNodes.WithLabelValues(t.profile, metric.Name).Set(float64(snapshot.FreshNodes[i]))
	}

	t.onWay.WithLabelValues(t.profile).Set(float64(onWay))
	t.share.WithLabelValues(t.profile, string(units.CPU)).Set(float64(snapshot.Share.CPU))
	t.share.WithLabelValues(t.profile, string(units.Memory)).Set(float64(snapshot.Share.Memory))
}

// dropMetrics deletes the series of metrics that a new policy does not have.
func (t *profileMetrics) dropMetrics(old, policy *nodeload.Policy) {
	for _, metric := range old.Metrics {
		if !slices.ContainsFunc(policy.Metrics, func(m nodeload.Metric) bool { return m.Name == metric.Name }) {
			labels := map[string]string{"profile": t.profile, "metric": metric.Name}
			t.metricNodes.Delete(labels)
			t.closures.Delete(labels)
		}
	}
}
