// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
)

// painter colours the cells of a table, or leaves them as they are.
type painter bool

// The colours, as ANSI terminals know them.
const (
	colourLess  = "\x1b[32m" // Green: it requests less.
	colourMore  = "\x1b[33m" // Yellow: it requests more.
	colourFaint = "\x1b[2m"  // What is not known.
	colourBold  = "\x1b[1m"
	colourReset = "\x1b[0m"
)

// paintFor colours what goes to a terminal, unless the user wants none (NO_COLOR, see no-color.org) or it knows none.
func paintFor(w io.Writer) painter {
	return painter(isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (p painter) in(colour, text string) string {
	if !bool(p) || text == "" {
		return text
	}
	return colour + text + colourReset
}

// row colours changes by their sign.
func (p painter) row(header, row table.Row) table.Row {
	if !p {
		return row
	}
	out := make(table.Row, len(row))
	for i, cell := range texts(row) {
		switch {
		case cell == nothing:
			cell = p.in(colourFaint, cell)
		case header[i] == changeTitle && strings.HasPrefix(cell, "-"):
			cell = p.in(colourLess, cell)
		case header[i] == changeTitle && strings.HasPrefix(cell, "+"):
			cell = p.in(colourMore, cell)
		}
		out[i] = cell
	}
	return out
}

func (p painter) footer(row table.Row) table.Row {
	out := make(table.Row, len(row))
	for i, cell := range texts(row) {
		out[i] = p.in(colourBold, cell)
	}
	return out
}
