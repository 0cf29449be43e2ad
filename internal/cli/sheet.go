// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/metrics"
)

// sheet is a report in flat form, as people read it: a line for each container, or for each group. The table, Markdown
// and HTML all write it.
type sheet struct {
	header table.Row
	rows   []table.Row
	// footer is empty where nothing is summed up.
	footer table.Row
	// names is the number of columns in front that are text; the last one is text as well.
	names int
}

// Titles that mean something to how a table is drawn.
const (
	changeTitle    = "CHANGE"
	workloadsTitle = "WORKLOADS"
)

func (r *report) sheet() sheet {
	if r.groupBy != "" {
		return r.groupSheet()
	}
	s := sheet{header: table.Row{"NAMESPACE", "WORKLOAD", "CONTAINER"}}
	if r.fromFiles() {
		s.header = table.Row{"SERIES"}
	}
	s.names = len(s.header)
	s.header = append(append(s.header, r.amountTitles()...), "NOTE")
	for _, it := range r.items {
		for i := range it.plan.Containers {
			s.rows = append(s.rows, r.tableRow(it, i, s.names))
		}
	}
	if !r.fromFiles() && len(r.items) > 0 {
		s.footer = r.totalsRow(s.names)
	}
	return s
}

// amountTitles are the titles between the names and the note.
func (r *report) amountTitles() table.Row {
	var titles table.Row
	for _, resource := range r.resources {
		title := map[metrics.Resource]string{metrics.CPU: "CPU", metrics.Memory: "MEMORY"}[resource]
		if r.fromFiles() { // Files know nothing of what is requested today.
			titles = append(titles, title)
			continue
		}
		titles = append(titles, title+" NOW", title+" NEW", changeTitle)
	}
	if r.prices != nil {
		titles = append(titles, r.prices.book.Currency+"/MONTH")
	}
	return titles
}

// widths are those of the widest cell of each column.
func (s sheet) widths() []int {
	widths := make([]int, len(s.header))
	widen(widths, s.header)
	for _, row := range s.rows {
		widen(widths, row)
	}
	if len(s.footer) > 0 {
		widen(widths, s.footer)
	}
	return widths
}

// shortenKinds writes the kinds of workloads as kubectl's short names, for a narrow terminal.
func (s sheet) shortenKinds() {
	column := slices.Index(s.header, any("WORKLOAD"))
	if column < 0 {
		return
	}
	for _, row := range s.rows {
		kind, name, _ := strings.Cut(fmt.Sprint(row[column]), "/")
		for short, long := range shortKinds() {
			if strings.EqualFold(kind, long) {
				row[column] = short + "/" + name
			}
		}
	}
}

// texts are the cells as text.
func texts(row table.Row) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		out[i] = fmt.Sprint(cell)
	}
	return out
}
