// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package termtext

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"shop/web 3 → 2 €\tx\n": "shop/web 3 → 2 €\tx\n",
		"\u00a0\u3000":          "\u00a0\u3000",
		"a\x1b[31mb":            `a\u001b[31mb`,
		"a\rb\x07\x08\x00\x7f":  `a\u000db\u0007\u0008\u0000\u007f`,
		"\u0085\u009b2J":        `\u0085\u009b2J`,
		"\u202edc\u202c\u2066":  `\u202edc\u202c\u2066`,
		"\u061c\u200e\u200f":    `\u061c\u200e\u200f`,
		"\u2028\u2029\ufeff":    `\u2028\u2029\ufeff`,
		"\u200b\u00ad\u2060":    `\u200b\u00ad\u2060`,
		"\U000e0041":            `\udb40\udc41`,
		"\x9b31m\xff":           `\x9b31m\xff`,
		"\ufffd":                "\ufffd",
		"\ue000 private \ufffe": `\ue000 private \ufffe`,
		"日本語 العربية हिन्दी ok": "日本語 العربية हिन्दी ok",
	} {
		if got := Escape(text); got != want {
			t.Errorf("Escape(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	if got, want := Line("a\nb\tc\x1b"), `a\nb\tc\u001b`; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}

	if got, want := Indent("a\nb\r\nc\n"), "a\n  b\\u000d\n  c"; got != want {
		t.Errorf("Indent = %q, want %q", got, want)
	}
}

// TestWriter checks that characters which are written in parts stay whole, and that others are escaped.
func TestWriter(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	for _, b := range []byte("é→\u202e\U000e0041\x1b[2Jx") {
		if n, err := w.Write([]byte{b}); n != 1 || err != nil {
			t.Fatalf("Write of one byte = %d, %v, want 1", n, err)
		}
	}

	if got, want := out.String(), `é→\u202e\udb40\udc41\u001b[2Jx`; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}

	if NewWriter(w) != w {
		t.Error("NewWriter of a Writer is another one, which escapes twice")
	}
}

func TestWriteStyled(t *testing.T) {
	var out bytes.Buffer
	if err := WriteStyled(NewWriter(&out), Bold+"title"+Reset+" \x1b[5mx\x1b]0;t\x07 "+Green+"-1"+Reset+"\x1b[1;32m"); err != nil {
		t.Fatal(err)
	}

	if got, want := out.String(), "\x1b[1mtitle\x1b[0m \\u001b[5mx\\u001b]0;t\\u0007 \x1b[32m-1\x1b[0m\\u001b[1;32m"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestFprintf(t *testing.T) {
	var out bytes.Buffer
	Fprintf(&out, "%s %d %s %.1f %v|%s|%s\n", "a\nb", 3, 2*time.Second, 0.5, errors.New("x\x1b"), Trusted("t\nt\x1b"), []string{"l\n"})
	if got, want := out.String(), "a\\nb 3 2s 0.5 x\\u001b|t\nt\\u001b|[l\\n]\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// FuzzEscape checks that no text passes a character that a terminal acts on, and that JSON keeps its values.
func FuzzEscape(f *testing.F) {
	for _, text := range []string{"", "web", "\x1b]0;x\x07", "\u202e", "\x9b", "a\nb", "\U000e0001", `\u001b`} {
		f.Add(text, 1)
	}

	f.Fuzz(func(t *testing.T, text string, split int) {
		escaped := Escape(text)
		if !utf8.ValidString(escaped) || Escape(escaped) != escaped {
			t.Fatalf("Escape(%q) = %q, which is not safe", text, escaped)
		}

		for _, r := range escaped {
			if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x2028 || r == 0x2029 {
				t.Fatalf("Escape(%q) = %q, with %U", text, escaped, r)
			}
		}

		if strings.ContainsAny(Line(text), "\n\t") {
			t.Fatalf("Line(%q) = %q, want one line", text, Line(text))
		}

		var parts bytes.Buffer
		w := NewWriter(&parts)
		cut := max(0, min(split, len(text)))
		w.Write([]byte(text[:cut]))
		w.Write([]byte(text[cut:]))
		if utf8.ValidString(text) && parts.String() != escaped {
			t.Fatalf("two writes of %q at %d wrote %q, want %q", text, cut, parts.String(), escaped)
		}

		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}

		var before, after string
		if err := errors.Join(json.Unmarshal(encoded, &before), json.Unmarshal([]byte(Escape(string(encoded))), &after)); err != nil || before != after {
			t.Fatalf("JSON of %q is %q after Escape (%v), want %q", text, after, err, before)
		}
	})
}
