// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/component/termtext"
)

// FuzzYAML checks that the YAML of any text is one document with the same value, without a character that a terminal acts on.
func FuzzYAML(f *testing.F) {
	for _, text := range []string{"web", "a\n---\nkind: Secret", "\x7f\x1b[2J\u009b", "\u202e", "\U000e0001", "- x: y", "# c", "null", "1e3", "\ufeff", "\r\n", "\t a\n b \n", "\u2028", "\u0085"} {
		f.Add(text, 3)
	}

	f.Fuzz(func(t *testing.T, text string, number int) {
		want := map[string]any{"name": strings.ToValidUTF8(text, "\ufffd"), "list": []any{map[string]any{strings.ToValidUTF8(text, "\ufffd"): float64(number % 1000)}}}
		out, err := YAML(want)
		if err != nil {
			t.Fatalf("YAML(%q): %v", text, err)
		}

		if !termtext.IsSafe(string(out)) {
			t.Fatalf("YAML(%q) = %q, with control characters", text, out)
		}

		var got map[string]any
		if err := yaml.Unmarshal(out, &got); err != nil {
			t.Fatalf("YAML(%q) = %q, which is no YAML: %v", text, out, err)
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("YAML(%q) = %q has another value (-want +got):\n%s", text, out, diff)
		}

		if comment := Comment(text); strings.Count(comment, "\n") != 1 || !strings.HasSuffix(comment, "\n") || strings.Contains(comment, "\r") {
			t.Fatalf("Comment(%q) = %q, want one line", text, comment)
		}
	})
}
