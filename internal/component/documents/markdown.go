// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"regexp"
	"strings"

	"crane.io/crane/internal/component/termtext"
)

var (
	// blockMark matches what begins a heading, a list or a line below a heading.
	blockMark = regexp.MustCompile(`^(?:[#+=-]|[0-9]+[.)])`)
	// address matches what GitHub Flavored Markdown makes a link of without brackets.
	address = regexp.MustCompile(`(?i)://|\bwww\.|\b(?:mailto|xmpp):|@`)
)

// MarkdownParagraph returns text as a paragraph of Markdown, as MarkdownText, which begins no heading, list or quote.
func MarkdownParagraph(text string) string {
	return blockMark.ReplaceAllStringFunc(MarkdownText(text), asEntity)
}

// MarkdownText returns text as a part of a line or a cell of Markdown without markup, HTML and links.
func MarkdownText(text string) string {
	text = strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(text)
	text = strings.TrimSpace(termtext.Line(text)) // Four spaces would begin code.

	var b strings.Builder
	for _, c := range text {
		switch {
		case c == '<':
			b.WriteString("&lt;")
		case c == '>':
			b.WriteString("&gt;")
		case c == '&':
			b.WriteString("&amp;")
		case strings.ContainsRune("\\`*_[]|~", c):
			b.WriteByte('\\')
			b.WriteRune(c)
		default:
			b.WriteRune(c)
		}
	}

	return address.ReplaceAllStringFunc(b.String(), asEntity)
}

// asEntity replaces the last character of a mark by an entity, which is shown as the same character and begins nothing.
func asEntity(mark string) string {
	entities := map[byte]string{'#': "&#35;", '+': "&#43;", '=': "&#61;", '-': "&#45;", '.': "&#46;", ')': "&#41;", ':': "&#58;", '/': "&#47;", '@': "&#64;"}
	end := len(mark) - 1
	return mark[:end] + entities[mark[end]]
}
