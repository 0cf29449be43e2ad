// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"crane.io/crane/internal/component/texttable"
)

// stackIndent indents containers below their workload, stackNoteIndent notes below their container.
const (
	stackIndent     = "  "
	stackNoteIndent = "      "
)

// formatStackedTable returns the table for a narrow terminal: the workload is a line above its containers, and notes
// are lines below, so that names need no wrapping.
func formatStackedTable(s tableData, columns int, paint painter) string {
	// The columns of numbers, between the names and the note.
	first := s.names
	last := len(s.header) - 1

	if s.header[first] == workloadsTitle {
		first++
	}

	narrow := func(row table.Row) table.Row {
		cells := cellTexts(row)
		out := table.Row{cells[s.names-1]}
		if s.names > 1 {
			out[0] = stackIndent + cells[s.names-1]
		}

		for _, cell := range cells[first:last] {
			out = append(out, strings.Replace(cell, "costs ", "-", 1))
		}

		return out
	}

	header := narrow(s.header)
	for i, title := range cellTexts(header) {
		header[i] = strings.Replace(title, "MEMORY ", "MEM ", 1)
	}

	footer := narrow(s.footer)
	footer[0] = s.footer[0]

	rows := make([]table.Row, len(s.rows))
	for i, row := range s.rows {
		rows[i] = narrow(row)
	}

	width := nameWidth(append([]table.Row{header, footer}, rows...), columns)
	t := texttable.New()
	t.AppendHeader(header)

	for _, row := range rows {
		cells := paint.row(header, row)
		if exceedsWidth(row, width) { // The name is printed on a separate line.
			cells = append(table.Row{stackIndent}, cells[1:]...)
		}

		t.AppendRow(cells)
	}

	t.AppendFooter(paint.footer(footer))
	t.SetColumnConfigs(columnConfigs(append(slices.Clone(header), ""), 1, maxNoteWidth)[:len(header)])

	lines := strings.Split(t.Render(), "\n") // The header, one line per row, and the footer.
	var b strings.Builder
	b.WriteString(lines[0] + "\n")

	above := ""
	for i, row := range s.rows {
		if names := strings.TrimSpace(strings.Join(cellTexts(row)[:s.names-1], " ")); names != above {
			above = names
			b.WriteString(paint.paint(colorBold, names) + "\n")
		}

		if exceedsWidth(rows[i], width) {
			b.WriteString(cellTexts(rows[i])[0] + "\n")
		}

		b.WriteString(lines[i+1] + "\n")
		if note := cellTexts(row)[last]; note != "" {
			b.WriteString(wrapText(stackNoteIndent, note, columns))
		}
	}

	b.WriteString(lines[len(s.rows)+1] + "\n")
	return b.String()
}

func exceedsWidth(row table.Row, width int) bool {
	return text.StringWidthWithoutEscSequences(cellTexts(row)[0]) > width
}

// nameWidth returns the width that the numbers leave for the container names.
func nameWidth(rows []table.Row, columns int) int {
	const minWidth = 12
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		updateWidths(widths, row)
	}

	remaining := columns - 1
	for _, w := range widths[1:] {
		remaining -= w + len("  ")
	}

	return max(minWidth, min(widths[0], remaining))
}
