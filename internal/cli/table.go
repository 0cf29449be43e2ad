// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

const (
	// minNoteWidth is the minimum width of the note, the last column, which takes the remaining width of a terminal.
	minNoteWidth = 20
	// maxNoteWidth limits the note if the width is unknown, as for a file or a pipe.
	maxNoteWidth = 60
	// emptyCell marks a value that is not set or unknown.
	emptyCell = "-"
)

// newFigureTable returns a table with a separated header, for the figures of back-tests and simulations.
func newFigureTable(header ...any) table.Writer {
	t := texttable.New(header...)
	t.Style().Options.SeparateHeader = true
	return t
}

// renderTable writes one row per container or group. On a terminal, rows fit its width and changes are colored unless
// NO_COLOR is set.
func renderTable(w io.Writer, r *report) error {
	return writeTable(w, r, progressline.TerminalWidth(w), newPainter(w))
}

// writeTable writes a table of at most that number of columns; 0 means no limit. It writes nothing for a report without
// workloads.
func writeTable(w io.Writer, r *report, columns int, paint painter) error {
	if len(r.Items) == 0 {
		return nil
	}

	var text strings.Builder
	text.WriteString(formatTable(r, columns, paint))

	if r.Prices != nil && r.groupBy == "" {
		text.WriteString(formatSavings(r, columns))
	}

	for _, line := range r.Sources.Lines() {
		text.WriteString(wrapText("", line, columns))
	}

	if err := termtext.WriteStyled(w, text.String()); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}

	return nil
}

// formatTable returns the table without savings and sources.
func formatTable(r *report, columns int, paint painter) string {
	s := rowReport{r}.data()
	widths := s.widths()
	// A narrow terminal gets short kinds first, and then the stacked form.
	if excessWidth(widths, columns) > 0 {
		s.shortenKinds()
		widths = s.widths()
		if excessWidth(widths, columns) > 0 && !r.FromFiles() {
			return formatStackedTable(rowReport{r}.data(), columns, paint)
		}

		narrowNames(widths, s.names, columns)
	}

	t := texttable.New()
	t.AppendHeader(s.header)

	for _, row := range s.rows {
		t.AppendRow(paint.row(s.header, row))
	}

	if len(s.footer) > 0 {
		t.AppendFooter(paint.footer(s.footer))
	}

	configs := columnConfigs(s.header, s.names, noteWidth(columns, widths))
	for i := range s.names {
		configs[i].WidthMax = widths[i]
		configs[i].WidthMaxEnforcer = text.WrapHard
	}

	t.SetColumnConfigs(configs)
	return t.Render() + "\n"
}

// excessWidth returns the number of columns by which a row with a wrapped note exceeds the terminal.
func excessWidth(widths []int, columns int) int {
	if columns == 0 {
		return 0
	}

	last := len(widths) - 1
	excess := min(widths[last], minNoteWidth) + 1 - columns
	for _, w := range widths[:last] {
		excess += w + len("  ")
	}

	return excess
}

// narrowNames narrows the columns of names, the widest first. Longer names are wrapped, not truncated, because users
// copy them.
func narrowNames(widths []int, names, columns int) {
	const minWidth = 12
	for excess := excessWidth(widths, columns); excess > 0; excess-- {
		widest := 0
		for i := range names {
			if widths[i] > widths[widest] {
				widest = i
			}
		}

		if widths[widest] <= minWidth {
			return
		}

		widths[widest]--
	}
}

func (r rowReport) tableRow(it sizereport.Item, i, names int) table.Row {
	c := it.Plan.Containers[i]
	row := table.Row{it.Workload.Namespace, it.Workload.Kind + "/" + it.Workload.Name, c.Container}
	if names == 1 {
		row = table.Row{it.Workload.Name}
	}

	for _, resource := range r.Resources {
		switch resource {
		case metrics.CPU:
			row = append(row, r.visibleCells(sizingCells(c.CPU, c.Current.CPURequest, c.Target.CPURequest, formatCPU))...)
		case metrics.Memory:
			row = append(row, r.visibleCells(sizingCells(c.Memory, c.Current.MemoryRequest, c.Target.MemoryRequest, units.FormatMemory))...)
		}
	}

	if r.Prices != nil {
		row = append(row, savingCell(it.Savings[i]))
	}

	return append(row, r.note(it, i))
}

// visibleCells returns the cells that apply to the report: for files, the recommendation only.
func (r rowReport) visibleCells(all table.Row) table.Row {
	if r.FromFiles() {
		return all[1:2]
	}

	return all
}

// sizingCells returns the current request, the recommended request and the change.
func sizingCells[T units.MilliCPU | units.Bytes](s rightsize.Sizing, now, target *T, format func(T) string) table.Row {
	row := table.Row{emptyCell, emptyCell, emptyCell}
	if now != nil {
		row[0] = format(*now)
	}

	if s.Status != rightsize.Ready || target == nil {
		return row
	}

	row[1] = format(*target)
	if now != nil {
		row[2] = percentText(float64(*now), float64(*target))
	}

	return row
}

func percentText(now, target float64) string {
	change, ok := ratio(now, target)
	if !ok {
		return emptyCell
	}

	rounded := math.Round(change * 100)
	if rounded == 0 {
		return "0%"
	}

	return fmt.Sprintf("%+.0f%%", rounded)
}

func (r rowReport) totalsRow(names int) table.Row {
	t := r.totals()
	row := make(table.Row, names)
	for i := range row {
		row[i] = ""
	}

	row[0] = "TOTAL"
	row = append(row, r.amountCells(t)...)
	if r.Prices != nil {
		_, all := r.savingsByNamespace()
		row = append(row, savingCell(all.Saving))
	}

	return append(row, "requests of all pods")
}

// formatCPU returns a CPU quantity, with large amounts rounded to tenths of a core.
func formatCPU(m units.MilliCPU) string {
	const many = 10_000
	if m < many {
		return units.FormatCPU(m)
	}

	return strconv.FormatFloat(float64(m)/1000, 'f', 1, 64)
}

func formatCores(v float64) string { return tenths(v) }

func formatGiB(v float64) string { return tenths(v/(1<<30)) + "Gi" }

// tenths formats v with one decimal and without a negative zero.
func tenths(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', 1, 64) }

// formatGiBFine is formatGiB with two decimals, for the sums of a few containers.
func formatGiBFine(v float64) string { return strconv.FormatFloat(v/(1<<30), 'f', 2, 64) + "Gi" }

func updateWidths(widths []int, row table.Row) {
	for i, cell := range row {
		widths[i] = max(widths[i], text.StringWidthWithoutEscSequences(fmt.Sprint(cell)))
	}
}

// noteWidth returns the width that a row of total columns leaves for the note.
func noteWidth(total int, widths []int) int {
	if total == 0 {
		return maxNoteWidth
	}

	used := 0
	for _, w := range widths[:len(widths)-1] {
		used += w + len("  ")
	}

	return max(minNoteWidth, total-used-1)
}

func columnConfigs(header table.Row, names, note int) []table.ColumnConfig {
	configs := make([]table.ColumnConfig, 0, len(header))
	for i := range header {
		c := table.ColumnConfig{
			Number:      i + 1,
			Align:       text.AlignLeft,
			AlignHeader: text.AlignLeft,
			AlignFooter: text.AlignLeft,
		}

		switch {
		case i == len(header)-1:
			c.WidthMax = note
			c.WidthMaxEnforcer = text.WrapSoft
		case i >= names:
			c.Align = text.AlignRight
			c.AlignHeader = text.AlignRight
			c.AlignFooter = text.AlignRight
		}

		configs = append(configs, c)
	}

	return slices.Clip(configs)
}
