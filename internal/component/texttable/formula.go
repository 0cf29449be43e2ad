// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package texttable

import (
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
