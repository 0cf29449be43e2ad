// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/cost"
)

// prices are what the recommendations of a report are priced with.
type prices struct {
	book *cost.PriceBook
	// note says what the prices do not know of the cluster, empty where they know it.
	note string
}

// price adds to each workload what its plan is worth.
func (r *report) price(p *prices, tariff *cost.Tariff, placed workload.Placement) {
	r.prices = p
	for i := range r.items {
		it := &r.items[i]
		w := it.workload
		unit := tariff.At(placed.PodsByNode(w.Ref))
		it.saving = it.plan.SavingOf(unit, w.Replicas, runsToEnd(w.Ref))
		for c := range it.plan.Containers {
			it.savings = append(it.savings, it.plan.ContainerSaving(c, unit, w.Replicas, runsToEnd(w.Ref)))
		}
	}
}

// runsToEnd tells workloads whose pods come and go.
func runsToEnd(ref workload.Ref) bool { return ref.Kind == "Job" || ref.Kind == "CronJob" }

// price finds out what the nodes cost. A cluster whose nodes cannot be listed has the default prices, and says so: the
// requests are right all the same.
func (o *recommendOptions) price(ctx context.Context, out *report, around *surroundings) error {
	cluster, err := around.cluster(ctx, o.book.LabelKeys())
	found := &prices{book: o.book}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		found.note = "the nodes could not be listed"
		around.note(fmt.Sprintf("Warning: %v; savings are priced by the default of the price book", err))
	case len(cluster.Nodes) == 0:
		found.note = "no nodes are known"
	}
	tariff, err := cost.NewTariff(o.book, cluster.Nodes)
	if err != nil {
		return fmt.Errorf("pricing the nodes: %w", err)
	}
	out.price(found, tariff, cluster.Placement())
	return nil
}

// namespaceSaving sums up what the workloads of a namespace save.
type namespaceSaving struct {
	namespace string
	cost.Saving
	// notCounted is the number of containers of which something is left out.
	notCounted int
}

// savingsByNamespace returns the sums of the namespaces in their order, and the sum of all.
func (r *report) savingsByNamespace() (each []namespaceSaving, all namespaceSaving) {
	sums := map[string]*namespaceSaving{}
	for _, it := range r.items {
		sum := sums[it.workload.Namespace]
		if sum == nil {
			sum = &namespaceSaving{namespace: it.workload.Namespace}
			sums[it.workload.Namespace] = sum
		}
		for _, s := range it.savings {
			sum.add(s)
			all.add(s)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(sums), cmp.Compare) {
		each = append(each, *sums[name])
	}
	return each, all
}

func (n *namespaceSaving) add(s cost.Saving) {
	n.CPU += s.CPU
	n.Memory += s.Memory
	n.Counted += s.Counted
	n.Hourly = n.Hourly.Plus(s.Hourly)
	if len(s.NotCounted) > 0 {
		n.notCounted++
	}
}

// savingCell is the money that a container saves in a month; more requests cost, and nothing counted is nothing said.
func savingCell(s cost.Saving) string {
	monthly := s.Hourly.Total().PerMonth()
	switch {
	case s.Counted == 0:
		return nothing
	case s.Hourly.Total() < 0:
		return "costs " + formatMoney(-monthly)
	}
	return formatMoney(monthly)
}

// drawSavings are the sums below the table, and what they rest on.
func drawSavings(r *report, columns int) string {
	each, all := r.savingsByNamespace()
	t := newTable()
	header := table.Row{"NAMESPACE", "CORES SAVED", "MEMORY SAVED", r.prices.book.Currency + "/MONTH"}
	t.AppendHeader(header)
	row := func(name string, s namespaceSaving) table.Row {
		return table.Row{name, formatCores(float64(s.CPU) / 1000), formatGiB(float64(s.Memory)), formatMoney(s.Hourly.Total().PerMonth())}
	}
	for _, n := range each {
		t.AppendRow(row(n.namespace, n))
	}
	t.AppendFooter(row("TOTAL", all))
	t.SetColumnConfigs(columnConfigs(append(slices.Clone(header), ""), 1, maxNoteWidth)[:len(header)])
	text := "\n" + t.Render() + "\n" + wrapped("", r.prices.sentence(), columns)
	if all.notCounted > 0 {
		text += wrapped("", fmt.Sprintf("Not counted: %s (no request today, no number yet, or no run of a job).", plural(all.notCounted, "container")), columns)
	}
	return text
}

// sentence says where the prices are from.
func (p *prices) sentence() string {
	text := fmt.Sprintf("Prices in %s of %s, a month of %d hours", p.book.Currency, p.book.Date, cost.HoursPerMonth)
	if p.note != "" {
		text += "; " + p.note + ", so all is priced by the default of the price book"
	}
	return text + ". Below zero it costs more. Room becomes money when nodes go."
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// formatMoney writes cents; an amount that is not nothing is not written as nothing.
func formatMoney(v float64) string {
	if v != 0 && v > -0.005 && v < 0.005 {
		return strconv.FormatFloat(v, 'g', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// jsonPrices says what the savings are priced with.
type jsonPrices struct {
	Currency      string  `json:"currency"`
	Source        string  `json:"source"`
	Date          string  `json:"date"`
	HoursPerMonth float64 `json:"hoursPerMonth"`
	// Note says what the prices do not know of the cluster.
	Note string `json:"note,omitempty"`
}

// jsonSaving is what a change of requests is worth over all pods; below zero it costs.
type jsonSaving struct {
	// CPU is in cores, Memory in bytes; Hourly and Monthly are in the currency of the prices.
	CPU     float64 `json:"cpu"`
	Memory  int64   `json:"memory"`
	Hourly  float64 `json:"hourly"`
	Monthly float64 `json:"monthly"`
	// PricedFrom and Groups say which nodes the prices are from.
	PricedFrom string   `json:"pricedFrom,omitempty"`
	Groups     []string `json:"groups,omitempty"`
	// NotCounted says what is left out and why.
	NotCounted []string `json:"notCounted,omitempty"`
}

type jsonNamespace struct {
	Namespace string     `json:"namespace"`
	Saving    jsonSaving `json:"saving"`
}

func (p *prices) json() *jsonPrices {
	if p == nil {
		return nil
	}
	return &jsonPrices{Currency: p.book.Currency, Source: p.book.Source, Date: p.book.Date, HoursPerMonth: cost.HoursPerMonth, Note: p.note}
}

func savingJSON(s cost.Saving) *jsonSaving {
	return &jsonSaving{
		CPU: float64(s.CPU) / 1000, Memory: int64(s.Memory), Hourly: s.Hourly.Total().PerHour(), Monthly: s.Hourly.Total().PerMonth(),
		PricedFrom: string(s.Price.From), Groups: s.Price.Groups, NotCounted: s.NotCounted,
	}
}

// addSavings adds the money to the output.
func (j *jsonReport) addSavings(r *report) {
	if r.prices == nil {
		return
	}
	j.Prices = r.prices.json()
	for i, it := range r.items {
		j.Workloads[i].Saving = savingJSON(it.saving)
		for c := range it.savings {
			// The prices are those of the workload.
			one := it.savings[c]
			one.Price = cost.UnitPrice{}
			j.Workloads[i].Containers[c].Saving = savingJSON(one)
		}
	}
	each, all := r.savingsByNamespace()
	for _, n := range each {
		j.Namespaces = append(j.Namespaces, jsonNamespace{Namespace: n.namespace, Saving: *savingJSON(n.Saving)})
	}
	j.Totals.Saving = savingJSON(all.Saving)
}
