// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"maps"
	"slices"
)

// Tariff holds the prices of the nodes of one cluster. It is read-only once created.
type Tariff struct {
	// Currency is that of the price book.
	Currency string

	quotes   map[string]Quote
	fallback UnitPrice
}

// maxClusterPrice keeps sums of Nanos in range, in units of the currency per hour.
const maxClusterPrice = 9e9

// NewTariff prices nodes, each name once. The error names a node, or states that the sum is out of range.
func NewTariff(b *PriceBook, nodes []Node) (*Tariff, error) {
	t := &Tariff{Currency: b.Currency, quotes: make(map[string]Quote, len(nodes))}
	t.fallback = UnitPrice{
		CPU:    b.Default.Rates.CPU,
		Memory: b.Default.Rates.Memory,
		From:   FromPriceBook,
		Groups: []string{DefaultGroup},
	}

	total := 0.0
	for _, n := range nodes {
		q, err := b.Quote(n)
		if err != nil {
			return nil, err
		}

		if _, twice := t.quotes[n.Name]; !twice {
			total += q.Cost.Total().PerHour()
		}
		t.quotes[n.Name] = q
	}

	if total > maxClusterPrice {
		return nil, fmt.Errorf("the nodes cost %s %s an hour together: at most %s can be counted", formatFloat(total), b.Currency, formatFloat(maxClusterPrice))
	}

	var mean priceAverage
	for _, name := range slices.Sorted(maps.Keys(t.quotes)) {
		// The mean is weighted by size: the mean price of a core is the cost of all cores divided by their number.
		mean.cpu.add(t.quotes[name].Cost.CPU.PerHour(), cores(t.quotes[name].Size.CPU))
		mean.memory.add(t.quotes[name].Cost.Memory.PerHour(), gib(t.quotes[name].Size.Memory))
		mean.addGroup(t.quotes[name].Group)
	}

	if p, ok := mean.price(FromClusterMean); ok {
		t.fallback = p
	}

	return t, nil
}

// Quote returns the price of a node; false if it is unknown.
func (t *Tariff) Quote(node string) (Quote, bool) {
	q, ok := t.quotes[node]
	return q, ok
}

// PricedFrom is the source of a unit price.
type PricedFrom string

// The sources of a unit price, best first.
const (
	// FromNodes is the mean over the nodes of the workload's pods.
	FromNodes PricedFrom = "nodes of its pods"
	// FromClusterMean is the mean over all nodes, if no pod runs on a known node.
	FromClusterMean PricedFrom = "mean of the cluster"
	// FromPriceBook is the default group of the price book, if no node is known.
	FromPriceBook PricedFrom = "default of the price book"
)

// UnitPrice is the price of a core and of a GiB for one workload.
type UnitPrice struct {
	CPU    PerCoreHour
	Memory PerGiBHour
	From   PricedFrom
	// Groups are the groups of the price book that the prices come from, sorted.
	Groups []string
}

// At returns the unit price of a workload with a number of pods on each node: the mean over its pods on known nodes, else
// the mean of the cluster, else the default of the price book.
func (t *Tariff) At(pods map[string]int) UnitPrice {
	var mean priceAverage
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		q, ok := t.quotes[name]
		if !ok || pods[name] <= 0 || q.Size.CPU == 0 || q.Size.Memory == 0 {
			continue
		}

		n := float64(pods[name])
		mean.cpu.add(n*q.Cost.CPU.PerHour()/cores(q.Size.CPU), n)
		mean.memory.add(n*q.Cost.Memory.PerHour()/gib(q.Size.Memory), n)
		mean.addGroup(q.Group)
	}

	if p, ok := mean.price(FromNodes); ok {
		return p
	}

	return t.fallback
}

// priceAverage averages prices of cores and of memory.
type priceAverage struct {
	cpu, memory weightedSum
	groups      []string
}

type weightedSum struct{ sum, weight float64 }

func (w *weightedSum) add(sum, weight float64) {
	if weight > 0 {
		w.sum += sum
		w.weight += weight
	}
}

func (a *priceAverage) addGroup(group string) {
	if i, found := slices.BinarySearch(a.groups, group); !found {
		a.groups = slices.Insert(a.groups, i, group)
	}
}

func (a *priceAverage) price(from PricedFrom) (UnitPrice, bool) {
	if a.cpu.weight == 0 || a.memory.weight == 0 {
		return UnitPrice{}, false
	}

	return UnitPrice{
		CPU:    PerCoreHour(a.cpu.sum / a.cpu.weight),
		Memory: PerGiBHour(a.memory.sum / a.memory.weight),
		From:   from,
		Groups: a.groups,
	}, true
}
