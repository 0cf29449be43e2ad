// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlineCPUs(t *testing.T) {
	root := Root(t.TempDir())
	var r Reader
	if _, err := r.OnlineCPUs(root); !errors.Is(err, ErrGone) {
		t.Errorf("without the file: %v", err)
	}

	path := root.Path("sys/devices/system/cpu/online")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	for content, c := range map[string]struct{ want, problem string }{
		"0-3,8\n": {"0-3,8", ""}, "": {"", "middle of a line"}, "\n": {"", "is empty"}, "0-": {"", "middle of a line"}, "3-1\n": {"", "cpu/online: "},
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		got, err := r.OnlineCPUs(root)
		if got.String() != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("OnlineCPUs of %q = %s, %v, want %q and problem %q", content, got, err, c.want, c.problem)
		}
	}
}
