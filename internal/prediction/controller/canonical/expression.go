// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package canonical writes query expressions in one way, so that those of equal meaning are equal texts. It knows the
// characters of PromQL, and neither its grammar nor its functions.
package canonical

import (
	"regexp"
	"slices"
	"strings"
)

// matcher is one condition of a selector without space around it: a name, an operator, a value in quotes.
var matcher = regexp.MustCompile("^[\\w.:]+(=~|!~|!=|=)(\"(\\\\.|[^\"\\\\])*\"|'(\\\\.|[^'\\\\])*'|`[^`]*`)$")

// Expression writes an expression in one way, however it was typed: without space that means nothing, without empty braces,
// and with the conditions of a selector in order. So a metricQuery and an expressionQuery of the same series are one
// request, with one read and one model. It does not know the grammar: what is in quotes, what has a comment, and what is
// in braces and no plain list of conditions stays as it is, since the source may speak more than PromQL.
func Expression(expression string) string {
	expression = strings.TrimSpace(expression)
	out := make([]byte, 0, len(expression))
	braces := -1 // where in out the open braces begin
	for i := 0; i < len(expression); i++ {
		switch c := expression[i]; {
		case c == '#':
			return expression
		case c == '"' || c == '\'' || c == '`':
			end := closing(expression, i)
			if end < 0 {
				return expression
			}

			out = append(out, expression[i:end+1]...)
			i = end

		case space(c):
			for i+1 < len(expression) && space(expression[i+1]) {
				i++
			}

			if i+1 < len(expression) && len(out) > 0 && apart(out[len(out)-1], expression[i+1]) {
				out = append(out, ' ')
			}

		case c == '{':
			braces = len(out)
			out = append(out, c)
		case c == '}' && braces >= 0:
			out = append(out[:braces], ordered(string(out[braces+1:]), braces > 0 && word(out[braces-1]))...)
			braces = -1
		default:
			out = append(out, c)
		}
	}

	return string(out)
}

// closing returns where the quote that opens at i ends, -1 where it does not.
func closing(text string, i int) int {
	quote := text[i]
	for j := i + 1; j < len(text); j++ {
		switch {
		case text[j] == quote:
			return j
		case text[j] == '\\' && quote != '`':
			j++
		}
	}

	return -1
}

// ordered writes braces around conditions, in order; none around nothing, where a name is before them.
func ordered(conditions string, named bool) string {
	if conditions == "" && named {
		return ""
	}

	var list []string
	for rest := conditions; rest != ""; {
		end := 0
		for end < len(rest) && rest[end] != ',' {
			if c := rest[end]; c == '"' || c == '\'' || c == '`' {
				end = closing(rest, end)
			}
			end++
		}

		list = append(list, rest[:end])
		rest = strings.TrimPrefix(rest[end:], ",")
	}

	if slices.ContainsFunc(list, func(condition string) bool { return !matcher.MatchString(condition) }) {
		return "{" + conditions + "}"
	}

	slices.Sort(list)
	return "{" + strings.Join(list, ",") + "}"
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func word(c byte) bool {
	return c == '_' || c == ':' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// apart reports whether two characters would be read as one thing without the space between them.
func apart(a, b byte) bool {
	const operators = "=!~<>"
	return word(a) && word(b) || strings.IndexByte(operators, a) >= 0 && strings.IndexByte(operators, b) >= 0
}
