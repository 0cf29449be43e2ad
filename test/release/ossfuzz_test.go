// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestFuzzTargets checks that OSS-Fuzz builds every fuzz target of the code that runs in a cluster or at a user, and that each has inputs to
// begin with in the repository.
func TestFuzzTargets(t *testing.T) {
	listed := map[string]bool{}
	for line := range strings.Lines(read(t, root, "hack/ossfuzz/targets")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			listed[strings.TrimPrefix(line, "./")] = true
		}
	}

	declaration := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	found := map[string]bool{}
	for _, folder := range []string{"api", "internal", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testbed/") {
				return err
			}

			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}

			for _, match := range declaration.FindAllStringSubmatch(string(source), -1) {
				dir, err := filepath.Rel(root, filepath.Dir(path))
				if err != nil {
					return err
				}

				name := dir + " " + match[1]
				found[name] = true
				if !listed[name] {
					t.Errorf("hack/ossfuzz/targets lacks %q, want every fuzz target", name)
				}

				_, body, _ := strings.Cut(string(source), "func "+match[1]+"(")
				body, _, _ = strings.Cut(body, "\n}\n")
				seeds, err := filepath.Glob(filepath.Join(filepath.Dir(path), "testdata/fuzz", match[1], "*"))
				if err != nil {
					return err
				}

				if !strings.Contains(body, "f.Add(") && !strings.Contains(body, "(f") && len(seeds) == 0 {
					t.Errorf("%s has no inputs to begin with, want f.Add or files in testdata/fuzz", name)
				}
			}

			return nil
		})
		if err != nil {
			t.Fatalf("reading the tests of %s: %v", folder, err)
		}
	}

	for name := range listed {
		if !found[name] {
			t.Errorf("hack/ossfuzz/targets names %q, which does not exist", name)
		}

		// The builder searches "func NAME" in the folder of the package, and takes no target if it finds several.
		for other := range listed {
			if other != name && strings.HasPrefix(other, name) {
				t.Errorf("hack/ossfuzz/targets names %q and %q, want no target whose name begins with that of another in its package", name, other)
			}
		}
	}
}

// TestOSSFuzzProject checks that the project has what OSS-Fuzz requires, and that each target has a name of its own there.
func TestOSSFuzzProject(t *testing.T) {
	var project map[string]any
	if err := yaml.UnmarshalStrict([]byte(read(t, root, "hack/ossfuzz/project.yaml")), &project); err != nil {
		t.Fatalf("parsing project.yaml: %v", err)
	}

	for _, field := range []string{"homepage", "main_repo", "primary_contact", "language", "fuzzing_engines", "sanitizers"} {
		if project[field] == nil {
			t.Errorf("project.yaml lacks %s, want it", field)
		}
	}

	cmd := exec.CommandContext(t.Context(), "hack/ossfuzz/build.sh")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "LIST=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("listing the targets: %v\n%s", err, out)
	}

	names := strings.Fields(string(out))
	unique := slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) < 60 || len(unique) != len(names) {
		t.Errorf("build.sh builds %d targets, %d different ones, want at least 60 different ones", len(names), len(unique))
	}
}
