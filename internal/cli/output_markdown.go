// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/component/documents"
)

// renderMarkdown writes the table in GitHub Flavored Markdown, for example for a pull request.
func renderMarkdown(w io.Writer, r *report) error {
	s := rowReport{r}.data()
	var b strings.Builder
	fmt.Fprintf(&b, "# Recommended requests\n\n%s\n\n", documents.MarkdownParagraph(r.Subtitle()))

	line := func(row table.Row, mark string) {
		b.WriteString("|")
		for _, cell := range cellTexts(row) {
			if cell = documents.MarkdownText(cell); cell != "" {
				cell = " " + mark + cell + mark
			}
			b.WriteString(cell + " |")
		}

		b.WriteString("\n")
	}

	line(s.header, "")
	b.WriteString("|")

	for i := range s.header {
		if i < s.names || i == len(s.header)-1 {
			b.WriteString(" --- |")
		} else {
			b.WriteString(" ---: |")
		}
	}

	b.WriteString("\n")
	for _, row := range s.rows {
		line(row, "")
	}

	if len(s.footer) > 0 {
		line(s.footer, "**")
	}
	if r.Prices != nil {
		fmt.Fprintf(&b, "\n%s\n", documents.MarkdownParagraph(r.Prices.Description()))
	}

	for _, text := range r.Sources.Lines() {
		fmt.Fprintf(&b, "\n%s\n", documents.MarkdownParagraph(text))
	}

	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing Markdown: %w", err)
	}

	return nil
}
