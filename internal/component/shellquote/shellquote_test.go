// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package shellquote

import (
	"os/exec"
	"strings"
	"testing"

	"crane.io/crane/internal/component/termtext"
)

func TestCommand(t *testing.T) {
	for _, c := range []struct {
		words, operands []string
		want            string
	}{
		{[]string{"crane", "adopt", "-n", "shop", "--yes"}, []string{"deployment/web"}, "crane adopt -n shop --yes deployment/web"},
		{[]string{"crane", "adopt"}, []string{"--kubeconfig=x/web"}, "crane adopt -- '--kubeconfig=x/web'"},
		{[]string{"crane", "explain"}, []string{"x; rm -rf ~"}, "crane explain 'x; rm -rf ~'"},
		{[]string{"crane"}, []string{"it's", "$(id)", "`id`", ""}, `crane 'it'\''s' '$(id)' '` + "`id`" + `' ''`},
		{[]string{"crane"}, []string{"a\nreboot\n", "~root", "#x", "a\x1b[201~"}, `crane 'a\nreboot\n' '~root' '#x' 'a\u001b[201~'`},
	} {
		if got := Command(c.words, c.operands...); got != c.want {
			t.Errorf("Command(%q, %q) = %q, want %q", c.words, c.operands, got, c.want)
		}
	}
}

// TestWordInAShell checks with a real shell that a word is one argument with the same text.
func TestWordInAShell(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell:", err)
	}

	for _, text := range []string{"web", "a b", "$(echo x)", "`echo x`", "'", "''", `\`, `"`, "*", "~", "!x", "a;b", "a&b", "a|b", "<a>", "#a", "a\nb", "\x1b[201~\nid\n", "-n", "é", "\x80"} {
		out, err := exec.CommandContext(t.Context(), shell, "-c", "printf '%s|' "+Word(text)).CombinedOutput()
		if err != nil || string(out) != termtext.Line(text)+"|" {
			t.Errorf("a shell reads %s as %q (%v), want the one word %q", Word(text), out, err, termtext.Line(text))
		}
	}
}

// FuzzWord checks that no text leaves the quotes.
func FuzzWord(f *testing.F) {
	for _, text := range []string{"", "web", "'", `'\''`, "a'b;c", "\n", "\x1b"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		word := Word(text)
		if !termtext.IsSafe(word) || strings.ContainsAny(word, "\n\t") {
			t.Fatalf("Word(%q) = %q, with control characters", text, word)
		}

		var read strings.Builder
		quoted := false
		for i := 0; i < len(word); i++ {
			switch {
			case word[i] == '\'':
				quoted = !quoted
			case quoted:
				read.WriteByte(word[i])
			case word[i] == '\\' && i+1 < len(word):
				i++
				read.WriteByte(word[i])
			case strings.IndexByte(plain, word[i]) < 0:
				t.Fatalf("Word(%q) = %q, with %q outside of quotes", text, word, word[i])
			default:
				read.WriteByte(word[i])
			}
		}

		if quoted || read.String() != termtext.Line(text) {
			t.Fatalf("a shell reads %q of Word(%q) as %q, want %q", word, text, read.String(), termtext.Line(text))
		}
	})
}
