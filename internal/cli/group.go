// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// group is a set of workloads whose requests are summed.
type group struct {
	// names are the common names of the members: the namespace, the kind, or namespace and workload.
	names []string
	items []sizereport.Item
}

// jsonGroup is a row of --group-by.
type jsonGroup struct {
	// Name is the namespace, the kind, or namespace/kind/name.
	Name      string `json:"name"`
	Workloads int    `json:"workloads"`
	// WithoutNumber is the number of containers without a recommendation for CPU or memory.
	Containers    int         `json:"containers"`
	WithoutNumber int         `json:"withoutNumber,omitempty"`
	CPU           jsonTotal   `json:"cpu"`
	Memory        jsonTotal   `json:"memory"`
	Saving        *jsonSaving `json:"saving,omitempty"`
}

// groupTitles returns the titles of the name columns.
func groupTitles(grouping string) []string {
	return map[string][]string{byWorkload: {"NAMESPACE", "WORKLOAD"}, byNamespace: {"NAMESPACE"}, byKind: {"KIND"}}[grouping]
}

// groups returns the groups in the order of --sort, or none without --group-by.
func (r *report) groups() []group {
	if r.groupBy == "" {
		return nil
	}

	var all []group
	index := map[string]int{}
	for _, it := range r.Items {
		ref := it.Workload.Ref
		key := ref.String()
		names := []string{ref.Namespace, ref.Kind + "/" + ref.Name}
		switch r.groupBy {
		case byNamespace:
			key = ref.Namespace
			names = []string{ref.Namespace}
		case byKind:
			key = ref.Kind
			names = []string{ref.Kind}
		}

		i, ok := index[key]
		if !ok {
			i = len(all)
			index[key] = i
			all = append(all, group{names: names})
		}

		all[i].items = append(all[i].items, it)
	}

	if key := r.sortKey(r.sortBy); key != nil && r.sortBy != sortChange { // Relative changes have no sum.
		slices.SortStableFunc(all, func(a, b group) int { return cmp.Compare(b.sum(key), a.sum(key)) })
	}

	return all
}

// sum returns the sum of a sort key over the members.
func (g group) sum(key func(sizereport.Item) float64) float64 {
	sum := 0.0
	for _, it := range g.items {
		sum += key(it)
	}

	return sum
}

// saving returns the sum of the savings of the members.
func (g group) saving() namespaceSaving {
	var sum namespaceSaving
	for _, it := range g.items {
		for _, s := range it.Savings {
			sum.add(s)
		}
	}

	return sum
}

// containers returns the number of containers and of those without a recommendation for a resource.
func (g group) containers(r *report) (all, without int) {
	for _, it := range g.items {
		for _, c := range it.Plan.Containers {
			all++
			if slices.ContainsFunc(r.resourceSizes(c), func(s resourceSize) bool { return s.status != rightsize.Ready }) {
				without++
			}
		}
	}

	return all, without
}

func (g group) json(r *report) jsonGroup {
	t := sumRequests(g.items)
	out := jsonGroup{
		Name:      g.name(),
		Workloads: len(g.items),
		CPU:       jsonTotal{Current: t.cpuNow, Recommended: t.cpuRecommended},
		Memory:    jsonTotal{Current: t.memoryNow, Recommended: t.memoryRecommended},
	}

	out.Containers, out.WithoutNumber = g.containers(r)
	if r.Prices != nil {
		out.Saving = newJSONSaving(g.saving().Saving)
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

// groupData returns one row per group.
func (r rowReport) groupData() tableData {
	s := tableData{}
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
		out = append(out, r.amountCells(sumRequests(g.items))...)
		if r.Prices != nil {
			out = append(out, savingCell(g.saving().Saving))
		}

		return append(out, note)
	}

	for _, g := range r.groups() {
		note := ""
		if all, without := g.containers(r.report); without > 0 {
			note = fmt.Sprintf("%d of %s without a recommendation", without, units.FormatCount(all, "container"))
		}

		s.rows = append(s.rows, row(g.names, g, note))
	}

	if len(r.Items) > 0 {
		names := make([]string, s.names)
		names[0] = "TOTAL"
		s.footer = row(names, group{items: r.Items}, "requests of all pods")
	}

	return s
}

// amountCells returns the sums over pods.
func (r rowReport) amountCells(t requestTotals) table.Row {
	var row table.Row
	for _, resource := range r.Resources {
		now := t.memoryNow
		after := t.memoryRecommended
		format := formatGiB
		if resource == metrics.CPU {
			now = t.cpuNow
			after = t.cpuRecommended
			format = formatCores
		}

		row = append(row, format(now), format(after), percentText(now, after))
	}

	return row
}
