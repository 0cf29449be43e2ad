// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clustercost

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"crane.io/crane/internal/component/seriesguard"
	"crane.io/crane/pkg/cost"
)

const (
	// maxSeriesOwners bounds the workloads with series of their own, the most expensive ones. The others of a namespace are
	// summed as otherOwner, so that the number of series is bounded.
	maxSeriesOwners = 2000
	// maxSeriesNamespaces bounds the namespaces in the same way.
	maxSeriesNamespaces = 1000
	// maxSeriesNodes bounds the nodes with series of their own, by name; Kubernetes supports 5,000.
	maxSeriesNodes = 5000
	// otherOwner is not a valid object name.
	otherOwner = "(other)"
)

// costBasis is one of the three measures by which the cost is allocated.
type costBasis struct {
	name  string
	split func(cost.Shares) cost.Split
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

// descriptions are those of the metrics; the order of labels is that of use.
type descriptions struct {
	workload, namespace, nodes, idle, read, failures *prometheus.Desc
	nodeCPU, nodeMemory, nodeTotal                   *prometheus.Desc
}

func describe() descriptions {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("crane", "cost", name), help, labels, nil)
	}

	return descriptions{
		workload: desc("workload_hourly", "Hourly share of a workload in the cost of the nodes, in the currency, by the request of its pods, their usage, or the larger of both.",
			"namespace", "owner_kind", "owner_name", "basis", "currency"),
		namespace: desc("namespace_hourly", "Hourly share of the workloads of a namespace in the cost of the nodes, in the currency.",
			"namespace", "basis", "currency"),
		nodes:    desc("nodes_hourly", "Hourly cost of the nodes of a group, in the currency.", "group", "capacity_type", "currency"),
		idle:     desc("idle_hourly", "Hourly cost of the nodes that is allocated to no workload, in the currency.", "resource", "basis", "currency"),
		read:     desc("read_timestamp_seconds", "Time of the last allocation of costs, in seconds since the epoch."),
		failures: desc("read_failures_total", "Refreshes of the costs that failed, in part or as a whole."),
		nodeCPU: prometheus.NewDesc("node_cpu_hourly_cost",
			"Hourly cost of one CPU of a node, in the currency; the name and unit of OpenCost and gocrane.", []string{"node", "currency"}, nil),
		nodeMemory: prometheus.NewDesc("node_ram_hourly_cost",
			"Hourly cost of one GiB of memory of a node, in the currency; the name and unit of OpenCost and gocrane.", []string{"node", "currency"}, nil),
		nodeTotal: prometheus.NewDesc("node_total_hourly_cost",
			"Hourly cost of a node, in the currency; the name and unit of OpenCost and gocrane.", []string{"node", "currency"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (l *Ledger) Describe(ch chan<- *prometheus.Desc) {
	d := describe()
	for _, desc := range []*prometheus.Desc{d.workload, d.namespace, d.nodes, d.idle, d.read, d.failures, d.nodeCPU, d.nodeMemory, d.nodeTotal} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector. The series are computed from the last allocation and disappear when it is too
// old.
func (l *Ledger) Collect(ch chan<- prometheus.Metric) {
	d := describe()
	l.mu.Lock()
	failures, b := l.failures, l.last
	stale := b == nil || l.stale()
	l.mu.Unlock()
	seriesguard.Send(ch, d.failures, prometheus.CounterValue, failures)

	if stale {
		return
	}

	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		seriesguard.Send(ch, desc, prometheus.GaugeValue, v, labels...)
	}
	a := b.allocation
	gauge(d.read, float64(b.allocatedAt.UnixMilli())/1000)

	for _, m := range costBases(b.withUsage) {
		for _, w := range limitWorkloads(a.Workloads) {
			gauge(d.workload, m.split(w.Cost).Total().PerHour(), w.Namespace, w.Kind, w.Name, m.name, a.Currency)
		}

		for _, n := range limitNamespaces(a.Namespaces) {
			gauge(d.namespace, m.split(n.Cost).Total().PerHour(), n.Namespace, m.name, a.Currency)
		}

		idle := m.split(a.Idle)
		gauge(d.idle, idle.CPU.PerHour(), "cpu", m.name, a.Currency)
		gauge(d.idle, idle.Memory.PerHour(), "memory", m.name, a.Currency)

		if a.Cluster.GPU > 0 {
			gauge(d.idle, idle.GPU.PerHour(), "gpu", m.name, a.Currency)
		}
	}

	// Nodes of one group have one series; the cost of single nodes is exported for a bounded number of them.
	type pool struct{ group, capacity string }
	pools := map[pool]cost.Nanos{}
	for _, n := range a.Nodes {
		pools[pool{n.Group, n.CapacityType}] += n.Cost.Total()
	}

	for _, n := range a.Nodes[:min(len(a.Nodes), maxSeriesNodes)] {
		if cores := float64(n.Size.CPU) / 1000; cores > 0 {
			gauge(d.nodeCPU, n.Cost.CPU.PerHour()/cores, n.Node, a.Currency)
		}
		if gib := float64(n.Size.Memory) / (1 << 30); gib > 0 {
			gauge(d.nodeMemory, n.Cost.Memory.PerHour()/gib, n.Node, a.Currency)
		}

		gauge(d.nodeTotal, n.Cost.Total().PerHour(), n.Node, a.Currency)
	}

	for p, sum := range pools {
		gauge(d.nodes, sum.PerHour(), p.group, p.capacity, a.Currency)
	}
}

// limitWorkloads keeps the most expensive workloads, which come first, and sums the others by namespace.
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
	// If even the sums of namespaces are too many, the last by name share one series.
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

// limitNamespaces keeps the most expensive namespaces and sums the others.
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
