// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package termtext writes text for people: characters that control a terminal or change the order in which text is shown are
// written as escapes. Text of a cluster, of Prometheus or of a file is untrusted, and the reader's terminal acts on what it contains.
package termtext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Trusted is text of several lines that Fprintf and Fprintln print as it is but for control characters, such as a rendered table.
type Trusted string

// Styled is one line with style sequences, whose other parts are escaped already.
type Styled string

// Escape returns s with all but line breaks, tabs and printable characters as \u escapes, which are also those of JSON strings.
func Escape(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, isUnsafe) < 0 {
		return s
	}

	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case !isUnsafe(r):
			b.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}

		s = s[size:]
	}

	return b.String()
}

// Line is Escape that also escapes line breaks and tabs, so that the result is one line.
func Line(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(Escape(s), "\n", `\n`), "\t", `\t`)
}

// Indent is Escape with all lines but the first indented, so that none looks like a line of the program.
func Indent(s string) string {
	return strings.ReplaceAll(Escape(strings.TrimSpace(s)), "\n", "\n  ")
}

// IsSafe reports whether Escape does not change s.
func IsSafe(s string) bool { return Escape(s) == s }

// isUnsafe reports whether a character is no line break or tab, and neither visible nor a space. Format characters, which have no width or
// change the direction of text, are neither, nor are line separators, noncharacters and characters of private use.
func isUnsafe(r rune) bool {
	return r != '\n' && r != '\t' && !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r)
}
