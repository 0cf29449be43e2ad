// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clustercost

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"crane.io/crane/pkg/cost"
)

const (
	// maxSeriesOwners bounds the workloads that have series of their own: the dearest. The others of a namespace are
	// summed up under otherOwner. So the number of series does not grow without bound with the cluster.
	maxSeriesOwners = 2000
	// maxSeriesNamespaces bounds the namespaces in the same way.
	maxSeriesNamespaces = 1000
	// otherOwner cannot be the name of an object.
	otherOwner = "(other)"
)

// costBasis is one of the three ways to deal the cost out.
type costBasis struct {
	name string
	of   func(cost.Shares) cost.Split
}

func costBases(withUse bool) []costBasis {
	out := []costBasis{{"request", func(s cost.Shares) cost.Split { return s.Request }}}
	if withUse {
		out = append(out,
			costBasis{"use", func(s cost.Shares) cost.Split { return s.Usage }},
			costBasis{"max", func(s cost.Shares) cost.Split { return s.Max }})
	}
	return out
}

// descriptions of the metrics; the order of labels is that of use.
type descriptions struct{ workload, namespace, nodes, idle, read, failures *prometheus.Desc }

func describe() descriptions {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("crane", "cost", name), help, labels, nil)
	}
	return descriptions{
		workload: desc("workload_hourly", "What a workload bears of the nodes' cost, in the currency for an hour, by what its pods request, use, or the larger of the two.",
			"namespace", "owner_kind", "owner_name", "basis", "currency"),
		namespace: desc("namespace_hourly", "What the workloads of a namespace bear of the nodes' cost, in the currency for an hour.",
			"namespace", "basis", "currency"),
		nodes:    desc("nodes_hourly", "What the nodes of a group cost, in the currency for an hour.", "group", "capacity_type", "currency"),
		idle:     desc("idle_hourly", "What of the nodes' cost no workload bears, in the currency for an hour.", "resource", "basis", "currency"),
		read:     desc("read_timestamp_seconds", "When the costs were last read."),
		failures: desc("read_failures_total", "Readings that failed, in part or as a whole."),
	}
}

// Describe implements prometheus.Collector.
func (l *Ledger) Describe(ch chan<- *prometheus.Desc) {
	d := describe()
	for _, one := range []*prometheus.Desc{d.workload, d.namespace, d.nodes, d.idle, d.read, d.failures} {
		ch <- one
	}
}

// Collect implements prometheus.Collector. Series are made from the last reading, so that they go with what they are of;
// a reading that is too old has none.
func (l *Ledger) Collect(ch chan<- prometheus.Metric) {
	d := describe()
	l.mu.Lock()
	failures, b := l.failures, l.last
	l.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(d.failures, prometheus.CounterValue, failures)
	if b == nil || !b.allocated || l.cfg.Clock.Since(b.allocatedAt) > staleIntervals*l.cfg.Interval {
		return
	}
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	a := b.allocation
	gauge(d.read, float64(b.allocatedAt.UnixMilli())/1000)
	for _, m := range costBases(b.withUsage) {
		for _, w := range limitWorkloads(a.Workloads) {
			gauge(d.workload, m.of(w.Cost).Total().PerHour(), w.Namespace, w.Kind, w.Name, m.name, a.Currency)
		}
		for _, n := range limitNamespaces(a.Namespaces) {
			gauge(d.namespace, m.of(n.Cost).Total().PerHour(), n.Namespace, m.name, a.Currency)
		}
		idle := m.of(a.Idle)
		gauge(d.idle, idle.CPU.PerHour(), "cpu", m.name, a.Currency)
		gauge(d.idle, idle.Memory.PerHour(), "memory", m.name, a.Currency)
		if a.Cluster.GPU > 0 {
			gauge(d.idle, idle.GPU.PerHour(), "gpu", m.name, a.Currency)
		}
	}
	type pool struct{ group, capacity string }
	pools := map[pool]cost.Nanos{}
	for _, n := range a.Nodes {
		pools[pool{n.Group, n.CapacityType}] += n.Cost.Total()
	}
	for p, sum := range pools {
		gauge(d.nodes, sum.PerHour(), p.group, p.capacity, a.Currency)
	}
}

// limitWorkloads keeps the dearest workloads, which come first, and sums up the others by namespace.
func limitWorkloads(all []cost.WorkloadCost) []cost.WorkloadCost {
	if len(all) <= maxSeriesOwners {
		return all
	}
	sums := map[string]cost.Shares{}
	for _, w := range all[maxSeriesOwners:] {
		sums[w.Namespace] = sums[w.Namespace].Plus(w.Cost)
	}
	out := slices.Clone(all[:maxSeriesOwners])
	names := slices.SortedFunc(maps.Keys(sums), cmp.Compare)
	if len(names) > maxSeriesNamespaces {
		rest := cost.Shares{}
		for _, ns := range names[maxSeriesNamespaces:] {
			rest = rest.Plus(sums[ns])
		}
		out = append(out, cost.WorkloadCost{Workload: cost.Workload{Namespace: otherOwner, Kind: otherOwner, Name: otherOwner}, Bill: cost.Bill{Cost: rest}})
		names = names[:maxSeriesNamespaces]
	}
	for _, ns := range names {
		out = append(out, cost.WorkloadCost{Workload: cost.Workload{Namespace: ns, Kind: otherOwner, Name: otherOwner}, Bill: cost.Bill{Cost: sums[ns]}})
	}
	return out
}

// limitNamespaces keeps the dearest and sums up the others.
func limitNamespaces(all []cost.NamespaceCost) []cost.NamespaceCost {
	if len(all) <= maxSeriesNamespaces {
		return all
	}
	out := slices.Clone(all[:maxSeriesNamespaces])
	rest := cost.NamespaceCost{Namespace: otherOwner}
	for _, n := range all[maxSeriesNamespaces:] {
		rest.Cost = rest.Cost.Plus(n.Cost)
	}
	return append(out, rest)
}
