// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hostrecording

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRecordings(t *testing.T) {
	for _, name := range append(Names(), Nodes()...) {
		r, err := Recorded(name)
		if err != nil {
			t.Error(err)
			continue
		}

		dir := t.TempDir()
		for i, m := range r.Moments {
			if err := r.Write(dir, i); err != nil {
				t.Error(err)
			}

			for path, want := range m.Files {
				if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
					t.Errorf("%s at %s: %q, %v, want %q", path, m.At, got, err, want)
				}
			}
		}
	}

	if _, err := Recorded("none"); err == nil {
		t.Error("Recorded(\"none\") returned no error, want one")
	}

	for _, bad := range []string{"", "x\n", "# x\n-- a --\n", "== 1x ==\n", "== 0s ==\nx\n", "== 0s ==\n-- ../a --\nx\n"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) returned no error, want one", bad)
		}
	}
}
