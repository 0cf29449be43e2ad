// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shellquote makes commands for people to copy. Names in them are text from outside: a shell must read each as one word, and the
// program must not read it as a flag.
package shellquote

import (
	"strings"

	"crane.io/crane/internal/component/termtext"
)

// plain are the characters that no shell treats in a special way.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:,@"

// Command returns the words of a command, quoted where a POSIX shell needs it, and then its operands, after -- if one looks like a flag.
func Command(words []string, operands ...string) string {
	all := make([]string, 0, len(words)+1+len(operands))
	for _, word := range words {
		all = append(all, Word(word))
	}

	for _, operand := range operands {
		if strings.HasPrefix(operand, "-") {
			all = append(all, "--")
			break
		}
	}

	for _, operand := range operands {
		all = append(all, Word(operand))
	}

	return strings.Join(all, " ")
}

// Word returns text as one word of a POSIX shell. Control characters, which a terminal that pastes them would act on, are escaped: the
// word then names nothing that exists.
func Word(text string) string {
	text = termtext.Line(text)
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}

	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
