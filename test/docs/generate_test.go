// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGenerated compares the generated pages with the code; with CRANE_UPDATE_DOCS set it writes them.
func TestGenerated(t *testing.T) {
	t.Setenv("CRANE_SYSTEM_NAMESPACE", "") // It is the default of flags.
	pages := map[string]string{
		"docs/reference/api.md":                   apiPage(t, "config/crd"),
		"docs/reference/metrics.md":               metricsPage(t),
		"docs/reference/chart-values.md":          chartPage(t, "charts/crane/values.yaml"),
		"docs/reference/flags-crane-scheduler.md": schedulerPage(t),
	}

	for name, command := range commands() {
		pages["docs/reference/flags-"+name+".md"] = flagsPage(name, command)
	}

	for path, want := range pages {
		file := filepath.Join(root, filepath.FromSlash(path))
		if os.Getenv("CRANE_UPDATE_DOCS") != "" {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Error(err)
			}
			continue
		}

		got, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		} else if d := difference(string(got), want); d != "" {
			t.Errorf("%s is not current, run 'make generate': %s", path, d)
		}
	}
}

// difference describes the first line in which two pages differ; it is empty where they are equal.
func difference(got, want string) string {
	if got == want {
		return ""
	}

	g := strings.Split(got, "\n")
	w := strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "got " + g[i] + "\nwant " + w[i]
		}
	}

	return "one page is longer than the other"
}

// TestDifference shows that drift is found.
func TestDifference(t *testing.T) {
	for _, c := range []struct{ got, want string }{{"a\nb\n", "a\nc\n"}, {"a\n", "a\nb\n"}, {"", "a"}} {
		if difference(c.got, c.want) == "" {
			t.Errorf("difference(%q, %q) = \"\", want a difference", c.got, c.want)
		}
	}

	if d := difference("a\n", "a\n"); d != "" {
		t.Errorf("difference() of equal texts = %q, want none", d)
	}
}

// generatedBy is the notice at the end of the first paragraph of a generated page.
const generatedBy = "`make generate` writes this page from the code; do not edit it."

// cell returns text for a cell of a table: in one line, with the characters masked that Markdown would interpret.
func cell(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	var out strings.Builder
	code := false
	for _, r := range text {
		switch {
		case r == '`':
			code = !code
			out.WriteRune(r)
		case r == '|':
			out.WriteString("\\|")
		case !code && (r == '<' || r == '>' || r == '*' || r == '_' || r == '[' || r == ']'):
			out.WriteByte('\\')
			out.WriteRune(r)
		default:
			out.WriteRune(r)
		}
	}

	return out.String()
}

// code returns text as inline code, or nothing for no text.
func code(text string) string {
	if text == "" {
		return ""
	}

	return "`" + strings.ReplaceAll(text, "|", "\\|") + "`"
}

// TestCell shows that a cell cannot break its table.
func TestCell(t *testing.T) {
	for text, want := range map[string]string{
		"a\n  b":         "a b",
		"a|b":            "a\\|b",
		"<name>":         "\\<name\\>",
		"see `<x>`, <y>": "see `<x>`, \\<y\\>",
	} {
		if got := cell(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
