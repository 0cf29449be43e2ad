// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// stackIndent leads in what belongs to the line above, stackNote what is said of it.
const (
	stackIndent = "  "
	stackNote   = "      "
)

// drawStacked is the table for a narrow terminal: what several lines have in common stands above them on a line of its
// own (the workload above its containers), and notes stand below, so that names are not broken.
func drawStacked(s sheet, columns int, paint painter) string {
	first, last := s.names, len(s.header)-1 // Of the numbers, which lie between the names and the note.
	if s.header[first] == workloadsTitle {
		first++
	}
	narrow := func(row table.Row) table.Row {
		cells := texts(row)
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
	for i, title := range texts(header) {
		header[i] = strings.Replace(title, "MEMORY ", "MEM ", 1)
	}
	footer := narrow(s.footer)
	footer[0] = s.footer[0]
	rows := make([]table.Row, len(s.rows))
	for i, row := range s.rows {
		rows[i] = narrow(row)
	}
	width := nameWidth(append([]table.Row{header, footer}, rows...), columns)
	t := newTable()
	t.AppendHeader(header)
	for _, row := range rows {
		cells := paint.row(header, row)
		if tooLong(row, width) { // It has a line of its own.
			cells = append(table.Row{stackIndent}, cells[1:]...)
		}
		t.AppendRow(cells)
	}
	t.AppendFooter(paint.footer(footer))
	t.SetColumnConfigs(columnConfigs(append(slices.Clone(header), ""), 1, maxNoteWidth)[:len(header)])

	lines := strings.Split(t.Render(), "\n") // The header, one for each row, and the footer.
	var b strings.Builder
	b.WriteString(lines[0] + "\n")
	above := ""
	for i, row := range s.rows {
		if names := strings.TrimSpace(strings.Join(texts(row)[:s.names-1], " ")); names != above {
			above = names
			b.WriteString(paint.in(colourBold, names) + "\n")
		}
		if tooLong(rows[i], width) {
			b.WriteString(texts(rows[i])[0] + "\n")
		}
		b.WriteString(lines[i+1] + "\n")
		if note := texts(row)[last]; note != "" {
			b.WriteString(wrapped(stackNote, note, columns))
		}
	}
	b.WriteString(lines[len(s.rows)+1] + "\n")
	return b.String()
}

func tooLong(row table.Row, width int) bool {
	return text.StringWidthWithoutEscSequences(texts(row)[0]) > width
}

// nameWidth is what the numbers leave for the names of containers.
func nameWidth(rows []table.Row, columns int) int {
	const least = 12
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		widen(widths, row)
	}
	left := columns - 1
	for _, w := range widths[1:] {
		left -= w + len("  ")
	}
	return max(least, min(widths[0], left))
}
