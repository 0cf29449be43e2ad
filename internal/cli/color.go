// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/metrics/progressline"
)

// painter colors the cells of a table if it is true.
type painter bool

// Colors of the cells of a table.
const (
	colorLess  = termtext.Green  // Lower request.
	colorMore  = termtext.Yellow // Higher request.
	colorFaint = termtext.Faint  // Unknown value.
	colorBold  = termtext.Bold
)

// newPainter enables colors if w is a terminal that supports them and NO_COLOR (see no-color.org) is not set.
func newPainter(w io.Writer) painter {
	return painter(progressline.IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (p painter) paint(color, text string) string {
	if !bool(p) || text == "" {
		return text
	}

	return color + text + termtext.Reset
}

// row colors changes by their sign. The text of the cells is escaped already.
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

		out[i] = termtext.Styled(cell)
	}

	return out
}

func (p painter) footer(row table.Row) table.Row {
	out := make(table.Row, len(row))
	for i, cell := range cellTexts(row) {
		out[i] = termtext.Styled(p.paint(colorBold, cell))
	}

	return out
}
