// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/metrics/progressline"
)

// painter colors the cells of a table if it is true.
type painter bool

// ANSI escape sequences.
const (
	colorLess  = "\x1b[32m" // Green: lower request.
	colorMore  = "\x1b[33m" // Yellow: higher request.
	colorFaint = "\x1b[2m"  // Unknown value.
	colorBold  = "\x1b[1m"
	colorReset = "\x1b[0m"
)

// newPainter enables colors if w is a terminal that supports them and NO_COLOR (see no-color.org) is not set.
func newPainter(w io.Writer) painter {
	return painter(progressline.IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (p painter) paint(color, text string) string {
	if !bool(p) || text == "" {
		return text
	}

	return color + text + colorReset
}

// row colors changes by their sign.
func (p painter) row(header, row table.Row) table.Row {
	if !p {
		return row
	}

	out := make(table.Row, len(row))
	for i, cell := range cellTexts(row) {
		switch {
		case cell == emptyCell:
			cell = p.paint(colorFaint, cell)
		case header[i] == changeTitle && strings.HasPrefix(cell, "-"):
			cell = p.paint(colorLess, cell)
		case header[i] == changeTitle && strings.HasPrefix(cell, "+"):
			cell = p.paint(colorMore, cell)
		}

		out[i] = cell
	}

	return out
}

func (p painter) footer(row table.Row) table.Row {
	out := make(table.Row, len(row))
	for i, cell := range cellTexts(row) {
		out[i] = p.paint(colorBold, cell)
	}

	return out
}
