// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"strings"
	"testing"

	"crane.io/crane/internal/component/termtext"
)

func TestMarkdownText(t *testing.T) {
	for text, want := range map[string]string{
		"shop/web":                    "shop/web",
		"-50%":                        "-50%",
		"a\n# b":                      "a # b",
		"[x](http://evil) ![y](z)":    `\[x\](http:/&#47;evil) !\[y\](z)`,
		"http://evil www.evil a@evil": "http:/&#47;evil www&#46;evil a&#64;evil",
		"<img src=x>|`*_~":            "&lt;img src=x&gt;\\|\\`\\*\\_\\~",
		"\u202e":                      `\\u202e`,
	} {
		if got := MarkdownText(text); got != want {
			t.Errorf("MarkdownText(%q) = %q, want %q", text, got, want)
		}
	}

	for text, want := range map[string]string{
		"# h": "&#35; h", "- a": "&#45; a", "12. a": "12&#46; a", "1) a": "1&#41; a", "> q": "&gt; q", "    code": "code", "===": "&#61;==", "web": "web",
	} {
		if got := MarkdownParagraph(text); got != want {
			t.Errorf("MarkdownParagraph(%q) = %q, want %q", text, got, want)
		}
	}
}

// FuzzMarkdownText checks that no text is more than one line, or contains markup, HTML or a link.
func FuzzMarkdownText(f *testing.F) {
	for _, text := range []string{"web", "a|b", "\n\n# x", "<script>", "[a](b)", "http://x", "&lt;", `\*`, "WWW.x"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		got := MarkdownParagraph(text)
		if !termtext.IsSafe(got) || strings.ContainsAny(got, "\n\t<>") || strings.Contains(got, "://") || strings.Contains(strings.ToLower(got), "www.") && address.MatchString(got) {
			t.Fatalf("MarkdownParagraph(%q) = %q", text, got)
		}

		for i := range len(got) {
			if !strings.ContainsRune("`*_[]|~", rune(got[i])) {
				continue
			}

			before := got[:i]
			if slashes := len(before) - len(strings.TrimRight(before, `\`)); slashes%2 == 0 {
				t.Fatalf("MarkdownParagraph(%q) = %q, with %q at %d that is not escaped", text, got, got[i], i)
			}
		}
	})
}
