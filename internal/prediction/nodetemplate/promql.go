// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetemplate

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// decimal is what a text of a Node may be outside of strings.
var decimal = regexp.MustCompile(`^[0-9]{1,15}(\.[0-9]{1,15})?$`)

// resolveExpression replaces the placeholders of an expression in PromQL, so that no text ends the string in which it stands, and in the pattern
// of a matcher each matches itself alone. Outside of strings only numbers are allowed.
func resolveExpression(text string) (string, error) {
	var out strings.Builder
	var s scanner
	end := 0
	for _, match := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		literal := text[end:match[0]]
		out.WriteString(literal)
		s.scan(literal)

		value, err := hex.DecodeString(text[match[2]:match[3]])
		if err != nil {
			return "", fmt.Errorf("decoding a text of the Node: %w", err)
		}

		escaped, err := s.escape(string(value))
		if err != nil {
			return "", fmt.Errorf("%.80q of the Node %w", value, err)
		}

		out.WriteString(escaped)
		end = match[1]
	}

	out.WriteString(text[end:])
	return out.String(), nil
}

// scanner follows PromQL as far as is needed to know whether a place is in a string. The parser of Prometheus is not linked into agents.
type scanner struct {
	// quote begins the string that is read; 0 outside of strings.
	quote rune
	// isPattern is set in a string that follows =~ or !~.
	isPattern bool
	isComment bool
	// isEscaped is set after a backslash that escapes the next character.
	isEscaped bool
	// previous is the last character.
	previous rune
	// operator has the last two characters outside of strings, comments and white space.
	operator [2]rune
}

func (s *scanner) scan(text string) {
	for _, r := range text {
		switch {
		case s.isComment:
			s.isComment = r != '\n' && r != '\r'
		case s.quote == 0:
			s.scanOutside(r)
		case s.isEscaped:
			s.isEscaped = false
		case r == '\\' && s.quote != '`':
			s.isEscaped = true
		case r == s.quote:
			s.quote = 0
		}

		s.previous = r
	}
}

func (s *scanner) scanOutside(r rune) {
	switch r {
	case '"', '\'', '`':
		s.quote = r
		s.isPattern = isPatternOperator(string(s.operator[:]))
		s.operator = [2]rune{}
	case '#':
		s.isComment = true
	case ' ', '\t', '\n', '\r':
	default:
		s.operator = [2]rune{s.operator[1], r}
	}
}

// escape returns a text of the Node as it may stand at the scanner's place.
func (s *scanner) escape(text string) (string, error) {
	switch {
	case s.quote == 0 && !decimal.MatchString(text):
		return "", errors.New("is outside of a string and not a number")
	case s.quote == 0:
		return text, nil
	case text == "":
		return "", errors.New("is empty, which matches series without the label")
	case s.previous == '\\':
		return "", errors.New("follows a backslash, which would change its first character")
	}

	s.previous = 0

	// The pattern is quoted first: PromQL reads the string before Prometheus compiles the pattern.
	if s.isPattern {
		text = regexp.QuoteMeta(text)
	}

	if s.quote != '`' {
		return strings.NewReplacer(`\`, `\\`, "\n", `\n`, string(s.quote), `\`+string(s.quote)).Replace(text), nil
	}

	if strings.Contains(text, "`") {
		return "", errors.New("has a backquote in a string of backquotes")
	}

	return text, nil
}
