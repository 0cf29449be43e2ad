// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package texttable makes the tables that commands print.
package texttable

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"crane.io/crane/internal/component/termtext"
)

// lineTable is a table whose cells are each one line without control characters.
type lineTable struct{ table.Writer }

// New returns a table without borders, like that of kubectl. Control characters and line breaks in its cells are escaped, because
// names are untrusted input.
func New(header ...any) table.Writer {
	t := lineTable{table.NewWriter()}
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Options.SeparateHeader = false
	t.Style().Format.Header = text.FormatDefault
	t.Style().Format.Footer = text.FormatDefault
	t.Style().Box.PaddingLeft = ""
	t.Style().Box.PaddingRight = "  "
	t.SuppressTrailingSpaces()

	if len(header) > 0 {
		t.AppendHeader(header)
	}

	return t
}

// AppendHeader adds a header.
func (t lineTable) AppendHeader(row table.Row, configs ...table.RowConfig) {
	t.Writer.AppendHeader(lines(row), configs...)
}

// AppendRow adds a row.
func (t lineTable) AppendRow(row table.Row, configs ...table.RowConfig) {
	t.Writer.AppendRow(lines(row), configs...)
}

// AppendRows adds rows.
func (t lineTable) AppendRows(rows []table.Row, configs ...table.RowConfig) {
	for _, row := range rows {
		t.AppendRow(row, configs...)
	}
}

// AppendFooter adds a footer.
func (t lineTable) AppendFooter(row table.Row, configs ...table.RowConfig) {
	t.Writer.AppendFooter(lines(row), configs...)
}

func lines(row table.Row) table.Row {
	out := make(table.Row, len(row))
	for i, cell := range row {
		out[i] = termtext.Value(cell)
	}

	return out
}
