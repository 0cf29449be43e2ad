// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeep(t *testing.T) {
	s := Set{Cache: t.TempDir()}
	builds := 0
	keep := func(key string) string {
		t.Helper()

		path, err := s.cached("thing", []byte(key), ".x", func(path string) error {
			builds++
			return os.WriteFile(path, []byte(key), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}

		return path
	}

	first := keep("12345678")
	if again := keep("12345678"); again != first || builds != 1 {
		t.Errorf("cached twice with one key: built %d times as %s and %s, want once", builds, first, again)
	}

	second := keep("87654321")
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) || second == first {
		t.Errorf("cached with another key: %s and %s, want only the second", first, second)
	}
	if _, err := s.cached("thing", []byte("fails!!!"), ".x", func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), errors.New("half way"))
	}); err == nil {
		t.Error("cached with a failing build: no error, want one")
	}

	entries, err := filepath.Glob(filepath.Join(s.Cache, "thing-*"))
	if err != nil || len(entries) != 1 || entries[0] != second {
		t.Errorf("files in the cache = %v, error %v; want %s", entries, err, second)
	}
}

// TestCPIO checks the fields of the format that the kernel reads.
func TestCPIO(t *testing.T) {
	var c cpio
	c.dir("d")
	c.file("d/f", []byte("12345"))

	got := string(c.bytes())
	if len(got)%4 != 0 {
		t.Errorf("the archive has %d bytes, want a multiple of four", len(got))
	}

	want := "07070100000001000041ed" + strings.Repeat("0", 8*2) + "00000001" + strings.Repeat("0", 8*6) + "0000000200000000d\x00"
	if !strings.HasPrefix(got, want) {
		t.Errorf("entry of the directory = %q, want %q", got[:len(want)], want)
	}

	_, entry, _ := strings.Cut(got, "070701"+"00000002")
	if !strings.HasPrefix(entry, "000081ed") || !strings.Contains(entry, "00000005") || !strings.Contains(entry, "d/f\x00") || !strings.Contains(entry, "12345\x00\x00\x00") {
		t.Errorf("entry of the file = %q, want mode 81ed, 5 bytes, d/f and padded content", entry)
	}
	if !strings.Contains(got, "TRAILER!!!\x00") {
		t.Errorf("archive = %q, want a trailer", got)
	}
}

func TestLoadOrder(t *testing.T) {
	o := &loadOrder{modules: map[string]string{}, builtin: "kernel/fs/ext4/ext4.ko\n"}
	if err := o.add("ext4"); err != nil || len(o.files) != 0 {
		t.Errorf("add of a built-in module: files %v, error %v; want none", o.files, err)
	}
	if err := o.add("nothing"); err == nil {
		t.Error("add of a missing module: no error, want one")
	}
}

func TestStatic(t *testing.T) {
	if err := static(filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("static of a missing program: no error, want one")
	}

	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := static(script); err == nil {
		t.Error("static of a script: no error, want one")
	}

	// Dynamically linked programs are not static.
	libraries, err := librariesOf(t.Context(), "/bin/ls")
	if err != nil || len(libraries) == 0 {
		t.Skipf("/bin/ls is no dynamic program here: %v", err)
	}

	if err := static("/bin/ls"); err == nil || !strings.Contains(err.Error(), "dynamic linker") {
		t.Errorf("static of a dynamic program = %v, want an error that names the dynamic linker", err)
	}
}

// TestWithCommands: the error for a missing command names the make target that builds it.
func TestWithCommands(t *testing.T) {
	s := Set{Kit: filepath.Join(t.TempDir(), "nodekit")}
	if _, err := s.WithCommands("crane-agent"); err == nil || !strings.Contains(err.Error(), "make build-nodes") {
		t.Errorf("WithCommands of a missing command = %v, want an error that names make build-nodes", err)
	}
	if got, err := s.WithCommands(); err != nil || len(got.Commands) > 0 {
		t.Errorf("WithCommands() = %+v, error %v; want no commands", got.Commands, err)
	}
}
