// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/kube/workloadname"
	"crane.io/crane/internal/metrics"
)

// tableData is a report as rows: one per container or group. The table, Markdown and HTML formats print it.
type tableData struct {
	header table.Row
	rows   []table.Row
	// footer is empty if the report has no sums.
	footer table.Row
	// names is the number of leading text columns; the last column is text as well.
	names int
}

// Titles with a special layout or color.
const (
	changeTitle    = "CHANGE"
	workloadsTitle = "WORKLOADS"
)

// rowReport lays a report out as rows.
type rowReport struct{ *report }

func (r rowReport) data() tableData {
	s := r.containerData()
	if r.groupBy != "" {
		s = r.groupData()
	}

	// Names are text from outside; a control character would also break the columns and the lines of the rows.
	for _, row := range append(s.rows, s.footer, s.header) {
		for i, cell := range row {
			row[i] = termtext.Value(cell)
		}
	}

	return s
}

// containerData returns one row per container.
func (r rowReport) containerData() tableData {
	s := tableData{header: table.Row{"NAMESPACE", "WORKLOAD", "CONTAINER"}}
	if r.FromFiles() {
		s.header = table.Row{"SERIES"}
	}

	s.names = len(s.header)
	s.header = append(append(s.header, r.amountTitles()...), "NOTE")
	for _, it := range r.Items {
		for i := range it.Plan.Containers {
			s.rows = append(s.rows, r.tableRow(it, i, s.names))
		}
	}

	if !r.FromFiles() && len(r.Items) > 0 {
		s.footer = r.totalsRow(s.names)
	}

	return s
}

// amountTitles returns the titles between the names and the note.
func (r rowReport) amountTitles() table.Row {
	var titles table.Row
	for _, resource := range r.Resources {
		title := map[metrics.UsageKind]string{metrics.CPU: "CPU", metrics.Memory: "MEMORY"}[resource]
		if r.FromFiles() { // Files contain no current requests.
			titles = append(titles, title)
			continue
		}

		titles = append(titles, title+" NOW", title+" NEW", changeTitle)
	}

	if r.Prices != nil {
		titles = append(titles, r.Prices.Book.Currency+"/MONTH")
	}

	return titles
}

// widths returns the width of the widest cell of each column.
func (s tableData) widths() []int {
	widths := make([]int, len(s.header))
	updateWidths(widths, s.header)

	for _, row := range s.rows {
		updateWidths(widths, row)
	}

	if len(s.footer) > 0 {
		updateWidths(widths, s.footer)
	}

	return widths
}

// shortenKinds replaces the kinds of workloads with kubectl's short names, for a narrow terminal.
func (s tableData) shortenKinds() {
	column := slices.Index(s.header, any("WORKLOAD"))
	if column < 0 {
		return
	}

	for _, row := range s.rows {
		kind, name, _ := strings.Cut(fmt.Sprint(row[column]), "/")
		for short, long := range workloadname.ShortKinds() {
			if strings.EqualFold(kind, long) {
				row[column] = short + "/" + name
			}
		}
	}
}

// cellTexts returns the cells as strings.
func cellTexts(row table.Row) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		out[i] = fmt.Sprint(cell)
	}

	return out
}
