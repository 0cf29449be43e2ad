// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKubectlPlugin: with the binary in the path as kubectl-crane, kubectl runs it.
func TestKubectlPlugin(t *testing.T) {
	plugins := t.TempDir()
	if err := os.Symlink(binary(t, "crane"), filepath.Join(plugins, "kubectl-crane")); err != nil {
		t.Fatal(err)
	}

	kubectl := binary(t, "kubectl")
	t.Setenv("PATH", plugins+string(os.PathListSeparator)+os.Getenv("PATH"))

	series := t.TempDir()
	if err := os.WriteFile(filepath.Join(series, "web.csv"), []byte("ts,value\n600,0.5\n1200,0.5\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	r := execute(t, kubectl, "crane", "recommend", "--from", series, "-o", "csv")
	if r.code != 3 || !strings.Contains(r.out, ",Series,web,") || !strings.Contains(r.errOut, "nothing to recommend yet") {
		t.Errorf("exit code %d, want 3 with the row of web\n%s\n%s", r.code, r.out, r.errOut)
	}

	help, _ := run(t, kubectl, "crane", "recommend", "--help")
	if !strings.Contains(help, "kubectl crane recommend [flags]") {
		t.Errorf("the help text does not use the plugin name, want kubectl crane:\n%s", help)
	}
}
