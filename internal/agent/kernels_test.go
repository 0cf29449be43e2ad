// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/test/hostrecording"
)

// kernelCase is how the files of a kernel differ from a recording: some are missing, some cannot be read, some have other contents or rows.
type kernelCase struct {
	base                string
	without, unreadable []string
	// files are by moment, of which there may be one.
	files []map[string]string
	rows  []kernelRow
}

// kernelRow is a row at the end of a file in all groups; remove means that rows which begin with text are not in it.
type kernelRow struct {
	file, text string
	remove     bool
}

// readKernelCase reads a file of testdata/kernels: lines "# base NAME", "# without FILE", "# unreadable PART", "# row FILE TEXT" and "# no-row
// FILE START", then files as in a recording. A path "POD FILE" stands for the file in every group of a pod.
func readKernelCase(t *testing.T, path string) kernelCase {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	var k kernelCase
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "# base "); ok {
			k.base = name
		}
		if name, ok := strings.CutPrefix(line, "# without "); ok {
			k.without = append(k.without, name)
		}
		if name, ok := strings.CutPrefix(line, "# unreadable "); ok {
			k.unreadable = append(k.unreadable, name)
		}
		if text, ok := strings.CutPrefix(line, "# row "); ok {
			file, row, _ := strings.Cut(text, " ")
			k.rows = append(k.rows, kernelRow{file: file, text: row})
		}
		if text, ok := strings.CutPrefix(line, "# no-row "); ok {
			file, row, _ := strings.Cut(text, " ")
			k.rows = append(k.rows, kernelRow{file: file, text: row, remove: true})
		}
	}

	recording, err := hostrecording.Parse(string(content))
	if err != nil {
		t.Fatalf("parsing the recording %s: %v", path, err)
	}

	for _, moment := range recording.Moments {
		k.files = append(k.files, moment.Files)
	}

	return k
}

// apply changes the files of a host at a moment.
func (k kernelCase) apply(t *testing.T, dir string, moment int) {
	t.Helper()

	files := k.files[min(moment, len(k.files)-1)]

	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		for file, content := range files {
			name, ofPods := strings.CutPrefix(file, "POD ")
			if ofPods && entry.IsDir() && strings.Contains(filepath.Base(path), "pod") && strings.Count(path, "kubepods") > 0 && filepath.Base(path) != "kubepods" && !strings.HasSuffix(path, "kubepods.slice") {
				if err := os.WriteFile(filepath.Join(path, name), []byte(content), 0o600); err != nil {
					return err
				}
			}
		}

		if entry.IsDir() {
			return nil
		}

		if slices.Contains(k.without, filepath.Base(path)) {
			return os.Remove(path)
		}

		for _, part := range k.unreadable {
			if strings.Contains(path, part) {
				return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
			}
		}

		return k.applyRows(path)
	})
	if err != nil {
		t.Fatal(err)
	}

	for file, content := range files {
		if strings.HasPrefix(file, "POD ") {
			continue
		}

		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// applyRows changes the rows of a file of a group. A file that has them already stays.
func (k kernelCase) applyRows(path string) error {
	if !strings.Contains(path, "kubepods") {
		return nil
	}

	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	lines := slices.Collect(strings.Lines(string(content)))
	for _, row := range k.rows {
		if row.file != filepath.Base(path) {
			continue
		}

		if row.remove {
			lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, row.text) })
			continue
		}

		if line := row.text + "\n"; !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}

	text := strings.Join(lines, "")
	if text == string(content) {
		return nil
	}

	return os.WriteFile(path, []byte(text), 0o600)
}

// TestKernels compares the output of --once on the files of other kernels with golden output. The cases are made by hand from the kernels'
// documentation and sources, on recordings of other kernels; they are no recordings of these. CRANE_UPDATE_GOLDEN=1 records it.
func TestKernels(t *testing.T) {
	cases, err := filepath.Glob("testdata/kernels/*.txt")
	if err != nil || len(cases) == 0 {
		t.Fatalf("%d kernels, %v", len(cases), err)
	}

	for _, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			k := readKernelCase(t, path)
			recording := hostrecording.ForTest(t, k.base)
			k.apply(t, recording.Dir, 0)
			clk := recordedClock{clocktesting.NewFakeClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)), func() time.Duration {
				// Directories in place of unreadable files would block the next moment's files.
				var blocking []string
				_ = filepath.WalkDir(recording.Dir, func(path string, entry fs.DirEntry, err error) error {
					for _, part := range k.unreadable {
						if err == nil && entry.IsDir() && strings.Contains(path, part) && path != filepath.Clean(filepath.Join(recording.Dir, part)) {
							blocking = append(blocking, path)
						}
					}

					return err
				})
				for _, dir := range blocking {
					_ = os.Remove(dir)
				}

				recording.To(1)
				k.apply(t, recording.Dir, 1)
				for _, dir := range blocking {
					_ = os.MkdirAll(dir, 0o755) // A file that does not change is not written again.
				}

				return recording.Moments[1].At
			}}

			o := NewOptions()
			flags := pflag.NewFlagSet("crane-agent", pflag.ContinueOnError)
			o.AddFlags(flags)
			args := []string{
				"--host-root", recording.Dir, "--collect-interval", "10s", "--hostname-override", "node-1", "--bind-address", "",
				"--dry-run", "--once", "--rules", "testdata/rules.yaml", "--pods", "testdata/pods.yaml", "--node-labels", "pool=mixed", "--state-dir", t.TempDir(),
			}
			if err := flags.Parse(args); err != nil {
				t.Fatal(err)
			}

			var out bytes.Buffer
			if err := Run(t.Context(), o, clk, &out); err != nil {
				t.Fatalf("Run --once: %v", err)
			}

			got := strings.ReplaceAll(out.String(), recording.Dir, "HOST")
			golden := strings.TrimSuffix(path, ".txt") + ".golden"
			if os.Getenv("CRANE_UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the output of --once differs (-want +got), which CRANE_UPDATE_GOLDEN=1 records:\n%s", diff)
			}
		})
	}
}
