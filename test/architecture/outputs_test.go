// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// directOutput matches what writes to a stream without escaping its arguments, and what bypasses the streams of a command.
var directOutput = regexp.MustCompile(`\bfmt\.(?:Fprint|Fprintf|Fprintln|Print|Printf|Println)\(|\bos\.(?:Stdout|Stderr)\b|[^.\w]print(?:ln)?\(|\blog\.Print|table\.NewWriter\(`)

// TestOutputsAreEscaped checks that what prints text for people prints it with termtext, so that text of the cluster cannot control
// the terminal. Each exception has its reason.
func TestOutputsAreEscaped(t *testing.T) {
	folders := []string{"internal/cli/", "internal/recommendation/", "internal/adoption/", "internal/migrate/", "internal/kube/", "internal/dashboard/", "internal/metrics/progressline/"}
	reasons := map[string]string{
		"internal/cli/forecast_chart.go":                 "numbers of a chart, in a buffer",
		"internal/cli/forecast_svg.go":                   "numbers of a path, in a buffer",
		"internal/cli/output_markdown.go":                "escaped by documents.MarkdownText, in a buffer",
		"internal/metrics/progressline/line.go":          "the line is escaped before its width is known",
		"internal/recommendation/controller/run.go":      "a message of a condition, in a buffer",
		"internal/recommendation/sizesources/sources.go": "a cell of a table, in a buffer",
	}

	for _, file := range goFiles(t) {
		inside := false
		for _, folder := range folders {
			inside = inside || strings.HasPrefix(file, folder)
		}

		if !inside || strings.HasSuffix(file, "_test.go") {
			continue
		}

		source, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}

		found := directOutput.FindAllString(string(source), -1)
		if len(found) > 0 && reasons[file] == "" {
			t.Errorf("%s writes with %q, want termtext.Fprintf or termtext.Fprintln, which escape control characters", file, found)
		}
		if len(found) == 0 && reasons[file] != "" {
			t.Errorf("%s has a reason to write without termtext and does not: remove the reason", file)
		}
	}
}

// pastedCommand matches a command for people into which a text is formatted or appended.
var pastedCommand = regexp.MustCompile("[\"`](?:[^\"`\n]*[ ;:])?(?:kubectl|helm|crane) [a-z-][^\"`\n]*(?:%[sqv]|[\"`] *\\+)")

// TestCommandsAreQuoted checks that commands which people copy are made with shellquote, because names in them are text of a tenant.
func TestCommandsAreQuoted(t *testing.T) {
	reasons := map[string]string{
		"internal/migrate/findings.go": "the texts are versions, as numbers",
	}

	for _, file := range goFiles(t) {
		if !strings.HasPrefix(file, "internal/") && !strings.HasPrefix(file, "cmd/") || strings.HasPrefix(file, "internal/testbed/") || strings.HasSuffix(file, "_test.go") || reasons[file] != "" {
			continue
		}

		source, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}

		for _, found := range pastedCommand.FindAllString(string(source), -1) {
			t.Errorf("%s makes a command of text: %q, want shellquote.Command", file, found)
		}
	}
}
