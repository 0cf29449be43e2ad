// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"crane.io/crane/internal/component/atomicfile"
)

func TestReplacements(t *testing.T) {
	for name, replace := range map[string]func(string, []byte) error{
		"Write": atomicfile.Write, "WriteDurably": atomicfile.WriteDurably, "Replace": atomicfile.Replace,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			for _, want := range []string{"first", "", "a longer third"} {
				if err := replace(path, []byte(want)); err != nil {
					t.Fatalf("%s(%q) = %v, want no error", name, want, err)
				}

				expectContent(t, path, want)
			}

			info, err := os.Stat(path)
			if err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
				t.Errorf("Stat after %s = %v, %v; want mode 0600", name, info, err)
			}

			expectAlone(t, path)
		})
	}
}

func TestReplacements_Failure(t *testing.T) {
	for name, replace := range map[string]func(string, []byte) error{
		"Write": atomicfile.Write, "WriteDurably": atomicfile.WriteDurably, "Replace": atomicfile.Replace,
	} {
		t.Run(name, func(t *testing.T) {
			// A directory with a file in it cannot be replaced by a file.
			path := filepath.Join(t.TempDir(), "folder")
			if err := os.MkdirAll(filepath.Join(path, "child"), 0o700); err != nil {
				t.Fatal(err)
			}

			if err := replace(path, []byte("new")); err == nil {
				t.Errorf("%s onto a directory that is not empty succeeded, want an error", name)
			}

			expectAlone(t, path)
		})
	}
}

// TestWrite_Concurrent fails if writers share a temporary file, or a reader finds a part of a file.
func TestWrite_Concurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := atomicfile.Write(path, bytes.Repeat([]byte("0"), 1<<16)); err != nil {
		t.Fatalf("Write = %v, want no error", err)
	}

	var writers sync.WaitGroup
	for _, letter := range []string{"a", "b", "c"} {
		writers.Go(func() {
			for range 50 {
				if err := atomicfile.Write(path, bytes.Repeat([]byte(letter), 1<<16)); err != nil {
					t.Errorf("Write beside other writers = %v, want no error", err)
				}
			}
		})
	}

	for range 200 {
		content, err := os.ReadFile(path)
		if err != nil || len(content) != 1<<16 || strings.Count(string(content), string(content[:1])) != 1<<16 {
			t.Fatalf("ReadFile beside writers = %d bytes, %v; want 65536 bytes of one writer", len(content), err)
		}
	}

	writers.Wait()
	expectAlone(t, path)
}

// TestReplace_KeepsOldContent checks that the previous content stays after a failure.
func TestReplace_KeepsOldContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	if err := atomicfile.Replace(path, []byte("old")); err != nil {
		t.Fatal(err)
	}

	// A directory instead of the temporary file makes the write fail, as a full disk would.
	if err := os.MkdirAll(filepath.Join(path+".tmp", "full"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := atomicfile.Replace(path, []byte("new")); err == nil {
		t.Error("Replace with a blocked temporary file = nil, want an error")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("the file has %q, %v, want the old content", got, err)
	}
	if err := atomicfile.Replace(filepath.Join(dir, "nowhere", "state"), nil); err == nil {
		t.Error("Replace without a directory = nil, want an error")
	}
}

func TestIsTemporary(t *testing.T) {
	for name, want := range map[string]bool{"file.123.tmp": true, "file.tmp": true, "file": false, "tmp": false} {
		if got := atomicfile.IsTemporary(name); got != want {
			t.Errorf("IsTemporary(%q) = %t, want %t", name, got, want)
		}
	}
}

func expectContent(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("ReadFile = %q, %v; want %q", got, err, want)
	}
}

// expectAlone fails the test if temporary files were left beside path.
func expectAlone(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("ReadDir = %v, %v; want %s alone", entries, err, filepath.Base(path))
	}
}
