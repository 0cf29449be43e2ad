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

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

const (
	// The note is the last column; it takes what a terminal has left, but no less than this.
	minNoteWidth = 20
	// maxNoteWidth holds where the width is not known: a file or a pipe.
	maxNoteWidth = 60
	// nothing stands for what is not set or not known.
	nothing = "-"
)

// newFigureTable is a table of figures with a header and nothing to wrap, as back-tests and simulations print.
func newFigureTable(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatDefault
	t.Style().Box.PaddingLeft = ""
	t.Style().Box.PaddingRight = "  "
	t.AppendHeader(header)
	return t
}

// newTable is a table without lines, as kubectl's.
func newTable() table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Options.SeparateHeader = false
	t.Style().Format.Header = text.FormatDefault
	t.Style().Format.Footer = text.FormatDefault
	t.Style().Box.PaddingLeft = ""
	t.Style().Box.PaddingRight = "  "
	t.SuppressTrailingSpaces()
	return t
}

// renderTable writes a line for each container or group. Where w is a terminal lines fit its width, and changes are
// coloured unless NO_COLOR asks for none.
func renderTable(w io.Writer, r *report) error {
	return drawTable(w, r, terminalWidth(w), paintFor(w))
}

// drawTable writes a table for so many columns; 0 where the width is not known. Where there is no workload there is no
// table either.
func drawTable(w io.Writer, r *report, columns int, paint painter) error {
	if len(r.items) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString(drawSheet(r, columns, paint))
	if r.prices != nil && r.groupBy == "" {
		text.WriteString(drawSavings(r, columns))
	}
	for _, line := range r.sources.lines() {
		text.WriteString(wrapped("", line, columns))
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

// drawSheet is the table itself.
func drawSheet(r *report, columns int, paint painter) string {
	s := r.sheet()
	widths := s.widths()
	if tooWide(widths, columns) > 0 {
		s.shortenKinds()
		widths = s.widths()
		if tooWide(widths, columns) > 0 && !r.fromFiles() {
			return drawStacked(r.sheet(), columns, paint)
		}
		fitNames(widths, s.names, columns)
	}
	t := newTable()
	t.AppendHeader(s.header)
	for _, row := range s.rows {
		t.AppendRow(paint.row(s.header, row))
	}
	if len(s.footer) > 0 {
		t.AppendFooter(paint.footer(s.footer))
	}
	configs := columnConfigs(s.header, s.names, noteWidth(columns, widths))
	for i := range s.names {
		configs[i].WidthMax, configs[i].WidthMaxEnforcer = widths[i], text.WrapHard
	}
	t.SetColumnConfigs(configs)
	return t.Render() + "\n"
}

// tooWide is how many columns a line lacks for all but the note, and a note that is broken over lines.
func tooWide(widths []int, columns int) int {
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

// fitNames narrows the columns of names, the widest first. Names that are wider are broken over lines, not cut: they
// are what people copy.
func fitNames(widths []int, names, columns int) {
	const least = 12
	for excess := tooWide(widths, columns); excess > 0; excess-- {
		widest := 0
		for i := range names {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= least {
			return
		}
		widths[widest]--
	}
}

func (r *report) fromFiles() bool { return len(r.resources) == 1 }

func (r *report) tableRow(it item, i, names int) table.Row {
	c := it.plan.Containers[i]
	row := table.Row{it.workload.Namespace, it.workload.Kind + "/" + it.workload.Name, c.Container}
	if names == 1 {
		row = table.Row{it.workload.Name}
	}
	for _, resource := range r.resources {
		switch resource {
		case metrics.CPU:
			row = append(row, r.cells(sizingCells(c.CPU, c.Current.CPURequest, c.Target.CPURequest, formatCPU))...)
		case metrics.Memory:
			row = append(row, r.cells(sizingCells(c.Memory, c.Current.MemoryRequest, c.Target.MemoryRequest, rightsize.FormatMemory))...)
		}
	}
	if r.prices != nil {
		row = append(row, savingCell(it.savings[i]))
	}
	return append(row, r.note(it, i))
}

// cells leaves out what files cannot know.
func (r *report) cells(all table.Row) table.Row {
	if r.fromFiles() {
		return all[1:2]
	}
	return all
}

// sizingCells are what there is now, what is recommended, and the change.
func sizingCells[T series.MilliCPU | series.Bytes](s rightsize.Sizing, now, target *T, format func(T) string) table.Row {
	row := table.Row{nothing, nothing, nothing}
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
		return nothing
	}
	rounded := math.Round(change * 100)
	if rounded == 0 {
		return "0%"
	}
	return fmt.Sprintf("%+.0f%%", rounded)
}

func (r *report) totalsRow(names int) table.Row {
	t := r.totals()
	row := make(table.Row, names)
	for i := range row {
		row[i] = ""
	}
	row[0] = "TOTAL"
	row = append(row, r.amountCells(t)...)
	if r.prices != nil {
		_, all := r.savingsByNamespace()
		row = append(row, savingCell(all.Saving))
	}
	return append(row, "requests of all pods")
}

// formatCPU writes many cores so that they can be read at a glance; JSON has them exactly.
func formatCPU(m series.MilliCPU) string {
	const many = 10_000
	if m < many {
		return rightsize.FormatCPU(m)
	}
	return strconv.FormatFloat(float64(m)/1000, 'f', 1, 64)
}

func formatCores(v float64) string { return tenths(v) }

func formatGiB(v float64) string { return tenths(v/(1<<30)) + "Gi" }

// tenths has no zero with a sign.
func tenths(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', 1, 64) }

// formatGiBFine is formatGiB for the sums of few containers.
func formatGiBFine(v float64) string { return strconv.FormatFloat(v/(1<<30), 'f', 2, 64) + "Gi" }

func widen(widths []int, row table.Row) {
	for i, cell := range row {
		widths[i] = max(widths[i], text.StringWidthWithoutEscSequences(fmt.Sprint(cell)))
	}
}

// noteWidth is what a line of total columns leaves for the note.
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
		c := table.ColumnConfig{Number: i + 1, Align: text.AlignLeft, AlignHeader: text.AlignLeft, AlignFooter: text.AlignLeft}
		switch {
		case i == len(header)-1:
			c.WidthMax, c.WidthMaxEnforcer = note, text.WrapSoft
		case i >= names:
			c.Align, c.AlignHeader, c.AlignFooter = text.AlignRight, text.AlignRight, text.AlignRight
		}
		configs = append(configs, c)
	}
	return slices.Clip(configs)
}
