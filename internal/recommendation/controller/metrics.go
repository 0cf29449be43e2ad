// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/component/seriesguard"
	"crane.io/crane/pkg/cost"
)

// Metrics exports the Recommendations of the cluster under gocrane's metric names. It implements prometheus.Collector and is
// safe for concurrent use.
//
// Series are computed from the known Recommendations at each scrape and disappear with them. If several Recommendations have
// the same target and type, the oldest one is exported. Owners of a namespace can write the status of its Recommendations: values
// that no workload can have are left out, and the number of series of a Recommendation is bounded.
type Metrics struct {
	// Costs returns the last accounting of the cluster, which bounds the totals of savings; nil for none.
	Costs func() (*cost.Tariff, cost.Allocation, bool)

	now      func() time.Time
	outdated time.Duration

	values, replicas, selected, status, executions, savings *prometheus.Desc
	target, achieved                                        *prometheus.Desc
	totalSavings, totalCPU, totalMemory                     *prometheus.Desc

	mu      sync.Mutex
	entries map[types.NamespacedName]*entry
	// rules holds the time at which each rule last evaluated all targets. A Recommendation that did not change is not
	// written, and is as recent as that.
	rules map[string]time.Time
}

// entry holds the exported fields of a Recommendation.
type entry struct {
	created    time.Time
	target     corev1.ObjectReference
	kind       string
	values     []containerRequest
	replicas   *int32
	rule       string
	updated    time.Time
	failed     bool
	savings    *amounts
	evidence   []calibration
	executions float64
	// observed entries are exported. An entry without it counts executions of an object that may have been deleted
	// meanwhile.
	observed bool
}

// NewMetrics returns metrics without series. Recommendations older than outdated have the status OutDate.
func NewMetrics(now func() time.Time, outdated time.Duration) *Metrics {
	target := []string{"apiversion", "owner_kind", "namespace", "owner_name"}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("crane", "analysis", name), help, labels, nil)
	}

	return &Metrics{
		now:      now,
		outdated: outdated,
		entries:  map[types.NamespacedName]*entry{},
		rules:    map[string]time.Time{},
		values: desc("resource_recommendation", "Recommended request of a container, in cores or bytes.",
			append(slices.Clone(target), "container", "resource", "type")...),
		replicas: desc("replicas_recommendation", "Recommended number of pods.", append(slices.Clone(target), "type")...),
		selected: desc("select_targets", "1 for each target that a rule selects.", append([]string{"type"}, target...)...),
		status: desc("recommendations_status", "Seconds since the recommendation was last computed.",
			append(append([]string{"type"}, target...), "update_status", "result_status")...),
		executions: desc("recommendation_execution_total", "Evaluations of a target since this process first saw it.",
			append(slices.Clone(target), "type")...),
		savings: desc("recommendation_monthly_savings", "Monthly savings (730 hours) of the recommended requests in the currency; negative if they cost more.",
			append(slices.Clone(target), "currency", "type")...),
		target: desc("calibration_target_ratio", "Target of the policy calibrated: the share of the time that CPU usage of a container may exceed the request, 0 to 1.",
			append(slices.Clone(target), "container", "type")...),
		achieved: desc("calibration_achieved_ratio", "Share of the time that CPU usage of a container exceeded the request in the replay of its past days, 0 to 1.",
			append(slices.Clone(target), "container", "type")...),
		totalSavings: desc("recommendations_savings_monthly", "Sum of the monthly savings (730 hours) of all recommendations, each target once.", "currency"),
		totalCPU:     desc("recommendations_savings_cpu_cores", "Reduction of the requested CPU of all targets in cores."),
		totalMemory:  desc("recommendations_savings_memory_bytes", "Reduction of the requested memory of all targets in bytes."),
	}
}

// recordEvaluation stores the time at which a rule evaluated all of its targets.
func (m *Metrics) recordEvaluation(rule *analysisv1alpha1.RecommendationRule, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.rules[rule.Name] = at
}

// forgetRule drops a deleted rule.
func (m *Metrics) forgetRule(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.rules, name)
}

// ruleNameOf returns the name of the rule of a Recommendation; the label may hold a shortened one.
func ruleNameOf(rec *analysisv1alpha1.Recommendation) string {
	for _, owner := range rec.OwnerReferences {
		if owner.Kind == "RecommendationRule" {
			return owner.Name
		}
	}

	return ""
}

// observe stores the status of a Recommendation. Unreadable values are left out.
func (m *Metrics) observe(rec *analysisv1alpha1.Recommendation, values parsedValue) {
	m.mu.Lock()
	defer m.mu.Unlock()

	e := m.entry(rec)
	e.values = plausibleRequests(values.containers)
	e.replicas = plausibleReplicas(values.replicas)
	e.savings = plausibleSavings(rec.Status.Savings)
	e.evidence = plausibleEvidence(rec.Status.Evidence)

	e.rule = ruleNameOf(rec)
	e.observed = true
	if t := rec.Status.LastUpdateTime; t != nil {
		e.updated = t.Time
	}

	failed := meta.FindStatusCondition(rec.Status.Conditions, conditionFailed)
	e.failed = failed != nil && failed.Status == metav1.ConditionTrue
}

// countExecution counts one evaluation.
func (m *Metrics) countExecution(rec *analysisv1alpha1.Recommendation) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.entry(rec).executions++
}

// entry returns the entry of a Recommendation, creating it if necessary. m.mu must be held.
func (m *Metrics) entry(rec *analysisv1alpha1.Recommendation) *entry {
	key := types.NamespacedName{Namespace: rec.Namespace, Name: rec.Name}
	e := m.entries[key]
	if e == nil {
		e = &entry{}
		m.entries[key] = e
	}

	e.created = rec.CreationTimestamp.Time
	e.target = rec.Spec.TargetRef
	e.kind = string(rec.Spec.Type)

	return e
}

// forget drops the series of a Recommendation.
func (m *Metrics) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.entries, key)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.values, m.replicas, m.selected, m.status, m.executions, m.savings, m.target, m.achieved, m.totalSavings, m.totalCPU, m.totalMemory,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()

	now := m.now()
	seen := map[identity]bool{}
	sums := totalSavings{}
	for _, e := range m.sortedEntries() {
		id := identity{
			group:       e.target.APIVersion,
			kind:        e.target.Kind,
			namespace:   e.target.Namespace,
			name:        e.target.Name,
			recommender: e.kind,
		}

		// Recommendations of several rules for one target would be duplicate series.
		if seen[id] || !e.observed {
			continue
		}

		seen[id] = true
		m.collect(ch, e, now)
		sums.add(e)
	}

	m.collectTotals(ch, &sums)
}

func (m *Metrics) collectTotals(ch chan<- prometheus.Metric, sums *totalSavings) {
	if len(sums.largest) == 0 {
		return // Unknown savings differ from no savings.
	}

	limit := m.clusterCost()
	cpu, memory := 0.0, 0.0
	monthly := map[string]float64{}
	for _, saving := range sums.byNamespace() {
		share := saving.shareWithin(limit)
		cpu += saving.cpu * share
		memory += saving.memory * share
		monthly[saving.currency] += saving.monthly * share
	}

	for _, currency := range sums.commonCurrencies() {
		total := max(-limit, min(monthly[currency], limit))
		seriesguard.Send(ch, m.totalSavings, prometheus.GaugeValue, total, currency)
	}

	seriesguard.Send(ch, m.totalCPU, prometheus.GaugeValue, cpu)
	seriesguard.Send(ch, m.totalMemory, prometheus.GaugeValue, memory)
}

// clusterCost returns the cost of the nodes for a month, which is the most that workloads can save; infinite if it is not known.
func (m *Metrics) clusterCost() float64 {
	if m.Costs == nil {
		return math.Inf(1)
	}

	_, allocation, ok := m.Costs()
	monthly := allocation.Cluster.Total().PerMonth()
	if !ok || monthly <= 0 {
		return math.Inf(1)
	}

	return monthly
}

// sortedEntries returns the entries, oldest first. m.mu must be held.
func (m *Metrics) sortedEntries() []*entry {
	keys := slices.SortedFunc(maps.Keys(m.entries), func(a, b types.NamespacedName) int {
		return cmp.Or(m.entries[a].created.Compare(m.entries[b].created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})

	out := make([]*entry, len(keys))
	for i, k := range keys {
		out[i] = m.entries[k]
	}

	return out
}

func (m *Metrics) collect(ch chan<- prometheus.Metric, e *entry, now time.Time) {
	target := []string{e.target.APIVersion, e.target.Kind, e.target.Namespace, e.target.Name}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		seriesguard.Send(ch, d, prometheus.GaugeValue, v, append(append(slices.Clone(target), labels...), e.kind)...)
	}

	seriesguard.Send(ch, m.selected, prometheus.GaugeValue, 1, append([]string{e.kind}, target...)...)
	if !e.updated.IsZero() {
		age, update, result := m.stateOf(e, now)
		seriesguard.Send(ch, m.status, prometheus.GaugeValue, age.Seconds(), append(append([]string{e.kind}, target...), update, result)...)
	}

	if e.executions > 0 {
		seriesguard.Send(ch, m.executions, prometheus.CounterValue, e.executions, append(slices.Clone(target), e.kind)...)
	}

	if e.savings != nil {
		gauge(m.savings, e.savings.monthly, e.savings.currency)
	}

	for _, c := range e.evidence {
		gauge(m.target, c.target, c.container)
		gauge(m.achieved, c.achieved, c.container)
	}

	if e.replicas != nil {
		gauge(m.replicas, float64(*e.replicas))
	}

	for _, r := range e.values {
		gauge(m.values, r.amount, r.container, r.resource)
	}
}

// stateOf returns the age of a recommendation and the two labels of its status.
func (m *Metrics) stateOf(e *entry, now time.Time) (age time.Duration, update, result string) {
	updated := e.updated
	if at := m.rules[e.rule]; !e.failed && at.After(updated) {
		updated = at
	}

	age = max(0, now.Sub(updated))
	update, result = "Updated", "Success"
	if age > m.outdated {
		update = "OutDate"
	}
	if e.failed {
		result = "Failed"
	}

	return age, update, result
}
