// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/units"
)

// namespaceSaving is the sum of the savings in a namespace.
type namespaceSaving struct {
	namespace string
	cost.Saving
	// notCounted is the number of containers with uncounted parts.
	notCounted int
}

// savingsByNamespace returns the sums sorted by namespace and the total.
func (r *report) savingsByNamespace() (sums []namespaceSaving, all namespaceSaving) {
	byName := map[string]*namespaceSaving{}
	for _, it := range r.Items {
		sum := byName[it.Workload.Namespace]
		if sum == nil {
			sum = &namespaceSaving{namespace: it.Workload.Namespace}
			byName[it.Workload.Namespace] = sum
		}

		for _, s := range it.Savings {
			sum.add(s)
			all.add(s)
		}
	}

	for _, name := range slices.SortedFunc(maps.Keys(byName), cmp.Compare) {
		sums = append(sums, *byName[name])
	}

	return sums, all
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

// savingCell returns the monthly saving of a container, "costs N" if its requests grow, or emptyCell if nothing was
// counted.
func savingCell(s cost.Saving) string {
	monthly := s.Hourly.Total().PerMonth()
	switch {
	case s.Counted == 0:
		return emptyCell
	case s.Hourly.Total() < 0:
		return "costs " + formatMoney(-monthly)
	}

	return formatMoney(monthly)
}

// formatSavings returns the table of savings by namespace and the description of the prices.
func formatSavings(r *report, columns int) string {
	sums, all := r.savingsByNamespace()
	t := texttable.New()
	header := table.Row{"NAMESPACE", "CORES SAVED", "MEMORY SAVED", r.Prices.Book.Currency + "/MONTH"}
	t.AppendHeader(header)

	row := func(name string, s namespaceSaving) table.Row {
		return table.Row{name, formatCores(float64(s.CPU) / 1000), formatGiB(float64(s.Memory)), formatMoney(s.Hourly.Total().PerMonth())}
	}
	for _, n := range sums {
		t.AppendRow(row(n.namespace, n))
	}

	t.AppendFooter(row("TOTAL", all))
	t.SetColumnConfigs(columnConfigs(append(slices.Clone(header), ""), 1, maxNoteWidth)[:len(header)])

	text := "\n" + t.Render() + "\n" + wrapText("", r.Prices.Description(), columns)
	if all.notCounted > 0 {
		text += wrapText("", fmt.Sprintf("Not counted: %s (no current request, no recommendation yet, or no job run).", units.FormatCount(all.notCounted, "container")), columns)
	}

	return text
}

// formatMoney formats v with two decimals; small amounts keep one significant digit so that they do not appear as
// zero.
func formatMoney(v float64) string {
	if v != 0 && v > -0.005 && v < 0.005 {
		return strconv.FormatFloat(v, 'g', 1, 64)
	}

	return strconv.FormatFloat(v, 'f', 2, 64)
}

// jsonPrices describes the prices of the savings.
type jsonPrices struct {
	Currency      string  `json:"currency"`
	Source        string  `json:"source"`
	Date          string  `json:"date"`
	HoursPerMonth float64 `json:"hoursPerMonth"`
	// Note names data that is missing in the cluster.
	Note string `json:"note,omitempty"`
}

// jsonSaving is the saving by changed requests over all pods; negative values are costs.
type jsonSaving struct {
	// CPU is in cores, Memory in bytes; Hourly and Monthly are in the currency of the prices.
	CPU     float64 `json:"cpu"`
	Memory  int64   `json:"memory"`
	Hourly  float64 `json:"hourly"`
	Monthly float64 `json:"monthly"`
	// PricedFrom and Groups identify the nodes of the prices.
	PricedFrom string   `json:"pricedFrom,omitempty"`
	Groups     []string `json:"groups,omitempty"`
	// NotCounted lists the excluded parts with reasons.
	NotCounted []string `json:"notCounted,omitempty"`
}

type jsonNamespace struct {
	Namespace string     `json:"namespace"`
	Saving    jsonSaving `json:"saving"`
}

func newJSONPrices(p *sizereport.PriceInfo) *jsonPrices {
	if p == nil {
		return nil
	}

	return &jsonPrices{
		Currency:      p.Book.Currency,
		Source:        p.Book.Source,
		Date:          p.Book.Date,
		HoursPerMonth: cost.HoursPerMonth,
		Note:          p.Note,
	}
}

func newJSONSaving(s cost.Saving) *jsonSaving {
	return &jsonSaving{
		CPU:        float64(s.CPU) / 1000,
		Memory:     int64(s.Memory),
		Hourly:     s.Hourly.Total().PerHour(),
		Monthly:    s.Hourly.Total().PerMonth(),
		PricedFrom: string(s.Price.From),
		Groups:     s.Price.Groups,
		NotCounted: s.NotCounted,
	}
}

// addSavings adds prices and savings to the output.
func (j *jsonReport) addSavings(r *report) {
	if r.Prices == nil {
		return
	}

	j.Prices = newJSONPrices(r.Prices)
	for i, it := range r.Items {
		j.Workloads[i].Saving = newJSONSaving(it.Saving)
		for c := range it.Savings {
			// The workload states the source of the prices.
			saving := it.Savings[c]
			saving.Price = cost.UnitPrice{}

			j.Workloads[i].Containers[c].Saving = newJSONSaving(saving)
			for g, s := range it.GroupSavings[c] {
				j.Workloads[i].Containers[c].NodeGroups[g].Saving = newJSONSaving(s)
			}
		}
	}

	sums, all := r.savingsByNamespace()
	for _, n := range sums {
		j.Namespaces = append(j.Namespaces, jsonNamespace{Namespace: n.namespace, Saving: *newJSONSaving(n.Saving)})
	}
	j.Totals.Saving = newJSONSaving(all.Saving)
}
