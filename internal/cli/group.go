// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
)

// group is the sum of some workloads.
type group struct {
	// names are what the members have in common: the namespace, the kind, or namespace and workload.
	names []string
	items []item
}

// jsonGroup is a line of --group-by.
type jsonGroup struct {
	// Name is the namespace, the kind, or namespace/kind/name.
	Name      string `json:"name"`
	Workloads int    `json:"workloads"`
	// Containers counts all, WithoutNumber those of which CPU or memory has none yet.
	Containers    int         `json:"containers"`
	WithoutNumber int         `json:"withoutNumber,omitempty"`
	CPU           jsonTotal   `json:"cpu"`
	Memory        jsonTotal   `json:"memory"`
	Saving        *jsonSaving `json:"saving,omitempty"`
}

// groupTitles are the titles of a group's names.
func groupTitles(by string) []string {
	return map[string][]string{byWorkload: {"NAMESPACE", "WORKLOAD"}, byNamespace: {"NAMESPACE"}, byKind: {"KIND"}}[by]
}

// groups sums up what the report is grouped by, in the order in which the members come; none where it is not.
func (r *report) groups() []group {
	if r.groupBy == "" {
		return nil
	}
	var all []group
	index := map[string]int{}
	for _, it := range r.items {
		ref := it.workload.Ref
		key, names := ref.String(), []string{ref.Namespace, ref.Kind + "/" + ref.Name}
		switch r.groupBy {
		case byNamespace:
			key, names = ref.Namespace, []string{ref.Namespace}
		case byKind:
			key, names = ref.Kind, []string{ref.Kind}
		}
		i, ok := index[key]
		if !ok {
			i = len(all)
			index[key] = i
			all = append(all, group{names: names})
		}
		all[i].items = append(all[i].items, it)
	}
	return all
}

// saving sums up what the members save; notCounted is the number of containers of which something is left out.
func (g group) saving() namespaceSaving {
	var sum namespaceSaving
	for _, it := range g.items {
		for _, s := range it.savings {
			sum.add(s)
		}
	}
	return sum
}

// containers counts them, and those of which a resource has no number.
func (g group) containers(r *report) (all, without int) {
	for _, it := range g.items {
		for _, c := range it.plan.Containers {
			all++
			if slices.ContainsFunc(r.sizes(c), func(s size) bool { return s.status != rightsize.Ready }) {
				without++
			}
		}
	}
	return all, without
}

func (g group) json(r *report) jsonGroup {
	t := totalsOf(g.items)
	out := jsonGroup{
		Name: g.name(), Workloads: len(g.items),
		CPU:    jsonTotal{Current: t.cpuNow, Recommended: t.cpuRecommended},
		Memory: jsonTotal{Current: t.memoryNow, Recommended: t.memoryRecommended},
	}
	out.Containers, out.WithoutNumber = g.containers(r)
	if r.prices != nil {
		out.Saving = savingJSON(g.saving().Saving)
	}
	return out
}

func (g group) name() string {
	name := ""
	for _, n := range g.names {
		if name != "" && n != "" {
			name += "/"
		}
		name += n
	}
	return name
}

// groupSheet has a line for each group.
func (r *report) groupSheet() sheet {
	s := sheet{}
	for _, title := range groupTitles(r.groupBy) {
		s.header = append(s.header, title)
	}
	s.names = len(s.header)
	s.header = append(append(s.header, workloadsTitle), append(r.amountTitles(), "NOTE")...)
	row := func(names []string, g group, note string) table.Row {
		var out table.Row
		for _, n := range names {
			out = append(out, n)
		}
		out = append(out, len(g.items))
		out = append(out, r.amountCells(totalsOf(g.items))...)
		if r.prices != nil {
			out = append(out, savingCell(g.saving().Saving))
		}
		return append(out, note)
	}
	for _, g := range r.groups() {
		note := ""
		if all, without := g.containers(r); without > 0 {
			note = fmt.Sprintf("%d of %s without a number", without, plural(all, "container"))
		}
		s.rows = append(s.rows, row(g.names, g, note))
	}
	if len(r.items) > 0 {
		names := make([]string, s.names)
		names[0] = "TOTAL"
		s.footer = row(names, group{items: r.items}, "requests of all pods")
	}
	return s
}

// amountCells are sums over pods.
func (r *report) amountCells(t totals) table.Row {
	var row table.Row
	for _, resource := range r.resources {
		now, after, format := t.memoryNow, t.memoryRecommended, formatGiB
		if resource == metrics.CPU {
			now, after, format = t.cpuNow, t.cpuRecommended, formatCores
		}
		row = append(row, format(now), format(after), percentText(now, after))
	}
	return row
}
