// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package texttable

import (
	"strconv"
	"strings"

	"crane.io/crane/internal/component/termtext"
)

// EscapeFormula escapes control characters, and prefixes text that a spreadsheet would evaluate as a formula, because names are
// untrusted input.
func EscapeFormula(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + termtext.Line(s)
	}

	return termtext.Line(s)
}

// EscapeCells returns the cells of a line of CSV with EscapeFormula, except numbers.
func EscapeCells(cells []string) []string {
	out := make([]string, len(cells))
	for i, cell := range cells {
		out[i] = cell

		if _, err := strconv.ParseFloat(cell, 64); err != nil {
			out[i] = EscapeFormula(cell)
		}
	}

	return out
}
