// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplanetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestVersionOfTheBinary checks that the linker flags and go.mod name the same Kubernetes version.
func TestVersionOfTheBinary(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}

	ldflags, err := os.ReadFile(filepath.Join(root, ldflagsFile))
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	cmd.Dir = root
	version, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	want := strings.TrimSpace(string(version))
	found := regexp.MustCompile(`gitVersion=(\S+)`).FindAllStringSubmatch(string(ldflags), -1)
	if len(found) != 2 {
		t.Fatalf("%d gitVersion in %s, want those of component-base and client-go", len(found), ldflagsFile)
	}

	for _, f := range found {
		if f[1] != want {
			t.Errorf("%s contains version %s, want %s as in go.mod", ldflagsFile, f[1], want)
		}
	}
}
