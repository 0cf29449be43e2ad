// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// chartPage returns the reference of the values of the chart: each name with a comment, its default and the comment. Every value has a
// comment, or a name above it that has one and none below.
func chartPage(t *testing.T, path string) string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}

	var values map[string]any
	if err := yaml.UnmarshalStrict(content, &values); err != nil {
		t.Fatalf("parsing %s: %v", path, err)
	}

	var b strings.Builder
	b.WriteString("# Values of the chart\n\nLook up a value of the chart `charts/crane`, its default and what it does. " + generatedBy + "\n\n" +
		"[Install Crane](../how-to/install.md) has the tasks. Unknown names are refused (`values.schema.json`).\n\n" +
		"| value | default | description |\n| --- | --- | --- |\n")
	comments := valueComments(string(content))
	writeValues(t, &b, values, comments)

	return b.String()
}

// valueComment is the comment above a name in a file of values.
type valueComment struct{ path, text string }

// valueComments returns the commented names in the order of the file.
func valueComments(content string) []valueComment {
	var out []valueComment
	var names []string
	var comment []string
	for line := range strings.SplitSeq(content, "\n") {
		text := strings.TrimLeft(line, " ")
		depth := (len(line) - len(text)) / 2
		name, _, isName := strings.Cut(text, ":")
		switch {
		case strings.HasPrefix(text, "#"):
			comment = append(comment, strings.TrimSpace(strings.TrimPrefix(text, "#")))
			continue
		case isName && depth <= len(names):
			names = append(names[:depth], name)
			if len(comment) > 0 {
				out = append(out, valueComment{strings.Join(names, "."), strings.Join(comment, " ")})
			}
		}

		comment = nil
	}

	return out
}

func writeValues(t *testing.T, b *strings.Builder, values map[string]any, comments []valueComment) {
	t.Helper()

	covered := map[string]bool{}
	for i, c := range comments {
		if i+1 < len(comments) && strings.HasPrefix(comments[i+1].path, c.path+".") {
			continue // Its parts are described.
		}

		value, ok := valueAt(values, c.path)
		if !ok {
			t.Errorf("comment of %s, which is no value, want a comment of an existing value", c.path)
		}

		covered[c.path] = true
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}

		b.WriteString("| " + code(c.path) + " | " + code(string(raw)) + " | " + cell(c.text) + " |\n")
	}

	checkCovered(t, "", values, covered)
}

func valueAt(values map[string]any, path string) (any, bool) {
	var current any = values
	for name := range strings.SplitSeq(path, ".") {
		m, ok := current.(map[string]any)
		if !ok {
			return nil, false
		}

		if current, ok = m[name]; !ok {
			return nil, false
		}
	}

	return current, true
}

// checkCovered fails for values without a comment.
func checkCovered(t *testing.T, prefix string, values map[string]any, covered map[string]bool) {
	t.Helper()

	for name, value := range values {
		nested, ok := value.(map[string]any)
		switch {
		case covered[prefix+name]:
		case ok && len(nested) > 0:
			checkCovered(t, prefix+name+".", nested, covered)
		default:
			t.Errorf("value %s has no comment, want one", prefix+name)
		}
	}
}
