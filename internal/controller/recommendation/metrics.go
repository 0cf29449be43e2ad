// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// Metrics exports what the Recommendations of the cluster say, under gocrane's names. Series are made from the
// Recommendations that are known at the time of a scrape, so that they go away with them, and each set of labels is
// exported once, however many rules have chosen the workload: the oldest Recommendation counts.
//
// It implements prometheus.Collector and is safe for concurrent use.
type Metrics struct {
	now      func() time.Time
	outdated time.Duration

	values, selected, status, executions, savings *prometheus.Desc

	mu      sync.Mutex
	entries map[types.NamespacedName]*entry
}

// entry is one Recommendation as far as it is exported.
type entry struct {
	created    time.Time
	target     corev1.ObjectReference
	kind       string
	values     map[string]corev1.ResourceList
	updated    time.Time
	failed     bool
	savings    *analysisv1alpha1.Savings
	executions float64
	// observed entries are exported. One that was only executed may belong to an object that has gone meanwhile.
	observed bool
}

// NewMetrics returns metrics without any series. outdated is the age from which a recommendation counts as OutDate.
func NewMetrics(now func() time.Time, outdated time.Duration) *Metrics {
	target := []string{"apiversion", "owner_kind", "namespace", "owner_name"}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("crane", "analysis", name), help, labels, nil)
	}
	return &Metrics{
		now:      now,
		outdated: outdated,
		entries:  map[types.NamespacedName]*entry{},
		values: desc("resource_recommendation", "Recommended request of a container, in cores or bytes.",
			append(slices.Clone(target), "container", "resource")...),
		selected: desc("select_targets", "1 for each target that a rule has chosen.", append([]string{"type"}, target...)...),
		status: desc("recommendations_status", "Seconds since the recommendation was last computed.",
			append(append([]string{"type"}, target...), "update_status", "result_status")...),
		executions: desc("recommendation_execution_total", "Evaluations of a target since this process first saw it.",
			append(slices.Clone(target), "type")...),
		savings: desc("recommendation_monthly_savings", "What the recommended requests save in a month of 730 hours, in the currency; below zero they cost.",
			append(slices.Clone(target), "currency")...),
	}
}

// observe takes over what a Recommendation says. Values that cannot be read are left out.
func (m *Metrics) observe(rec *analysisv1alpha1.Recommendation, values map[string]corev1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(rec)
	e.values, e.observed, e.savings = values, true, rec.Status.Savings
	if t := rec.Status.LastUpdateTime; t != nil {
		e.updated = t.Time
	}
	failed := meta.FindStatusCondition(rec.Status.Conditions, conditionFailed)
	e.failed = failed != nil && failed.Status == metav1.ConditionTrue
}

// executed counts one evaluation.
func (m *Metrics) executed(rec *analysisv1alpha1.Recommendation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(rec).executions++
}

// entry must be called with the lock held.
func (m *Metrics) entry(rec *analysisv1alpha1.Recommendation) *entry {
	key := types.NamespacedName{Namespace: rec.Namespace, Name: rec.Name}
	e := m.entries[key]
	if e == nil {
		e = &entry{}
		m.entries[key] = e
	}
	e.created, e.target, e.kind = rec.CreationTimestamp.Time, rec.Spec.TargetRef, string(rec.Spec.Type)
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
	for _, d := range []*prometheus.Desc{m.values, m.selected, m.status, m.executions, m.savings} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	seen := map[identity]bool{}
	for _, e := range m.inOrder() {
		id := identity{
			group: e.target.APIVersion, kind: e.target.Kind, namespace: e.target.Namespace, name: e.target.Name, recommender: e.kind,
		}
		if seen[id] || !e.observed {
			continue
		}
		seen[id] = true
		m.collect(ch, e, now)
	}
}

// inOrder returns the entries, the oldest first. The lock must be held.
func (m *Metrics) inOrder() []*entry {
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
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(m.selected, 1, append([]string{e.kind}, target...)...)
	if !e.updated.IsZero() {
		age := now.Sub(e.updated)
		update, result := "Updated", "Success"
		if age > m.outdated {
			update = "OutDate"
		}
		if e.failed {
			result = "Failed"
		}
		gauge(m.status, age.Seconds(), append(append([]string{e.kind}, target...), update, result)...)
	}
	if e.executions > 0 {
		ch <- prometheus.MustNewConstMetric(m.executions, prometheus.CounterValue, e.executions, append(slices.Clone(target), e.kind)...)
	}
	if s := e.savings; s != nil {
		if monthly, err := strconv.ParseFloat(s.Monthly, 64); err == nil {
			gauge(m.savings, monthly, append(slices.Clone(target), s.Currency)...)
		}
	}
	for container, list := range e.values {
		for name, q := range list {
			gauge(m.values, q.AsApproximateFloat64(), append(slices.Clone(target), container, string(name))...)
		}
	}
}
