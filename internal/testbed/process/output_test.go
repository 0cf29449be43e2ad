// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLastLines(t *testing.T) {
	for name, test := range map[string]struct {
		writes []string
		want   []string
	}{
		"nothing":            {nil, []string{}},
		"fewer than kept":    {[]string{"a\nb\n"}, []string{"a", "b"}},
		"more than kept":     {[]string{"a\nb\nc\nd\n"}, []string{"b", "c", "d"}},
		"lines in pieces":    {[]string{"a", "b\nc", "", "d\n"}, []string{"ab", "cd"}},
		"unfinished line":    {[]string{"a\nb"}, []string{"a", "b"}},
		"empty lines":        {[]string{"a\n\n\n"}, []string{"a", "", ""}},
		"a line that is cut": {[]string{strings.Repeat("x", maxLineBytes), "yyy\nz\n"}, []string{strings.Repeat("x", maxLineBytes), "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := newOutput("", 3)
			if err != nil {
				t.Fatal(err)
			}

			for _, w := range test.writes {
				if n, err := o.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatalf("Write(%q) = %d, error %v; want %d", w, n, err, len(w))
				}
			}

			if got := o.lastLines(); !slices.Equal(got, test.want) {
				t.Errorf("lastLines() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestLogFileIsBoundedAndAppended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for range 2 {
		o, err := newOutput(path, 1)
		if err != nil {
			t.Fatal(err)
		}

		o.limit = 10
		for _, w := range []string{"1234\n", "5678\n"} {
			_, _ = o.Write([]byte(w))
		}
		o.close()
	}

	// The second run found a full file and set it aside.
	for file, want := range map[string]string{path: "1234\n5678\n", path + ".1": "1234\n5678\n"} {
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", file, got, err, want)
		}
		if info, err := os.Stat(file); err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s, want 0600", file, info.Mode())
		}
	}
}
