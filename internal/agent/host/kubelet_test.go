// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKubeletPolicy(t *testing.T) {
	root := Root(t.TempDir())
	const dir, file = "/var/lib/kubelet", "cpu_manager_state"

	path := root.Path(dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if _, err := ReadKubeletPolicy(root, dir, file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}

	for content, c := range map[string]struct{ want, problem string }{
		`{"policyName":"Static","checksum":1}`: {"static", ""}, `{}`: {"", ""}, `{"policyName":`: {"", file + ": "}, "": {"", file + ": "},
		strings.Repeat(" ", MaxKubeletFileBytes+1): {"", "is not a file of at most"},
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		if got, err := ReadKubeletPolicy(root, dir, file); got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("ReadKubeletPolicy of %.40q = %q, %v, want %q and problem %q", content, got, err, c.want, c.problem)
		}
	}

	if _, err := ReadKubeletPolicy(root, "/var/lib", "kubelet"); err == nil {
		t.Error("ReadKubeletPolicy of a directory = nil, want an error")
	}
}
