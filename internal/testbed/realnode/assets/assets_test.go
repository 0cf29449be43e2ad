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
	made := 0
	keep := func(key string) string {
		t.Helper()

		path, err := s.cached("thing", []byte(key), ".x", func(path string) error {
			made++
			return os.WriteFile(path, []byte(key), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}

		return path
	}

	first := keep("12345678")
	if again := keep("12345678"); again != first || made != 1 {
		t.Errorf("made %d times as %s and %s, want once", made, first, again)
	}

	second := keep("87654321")
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) || second == first {
		t.Errorf("the old version %s still exists beside %s", first, second)
	}
	if _, err := s.cached("thing", []byte("fails!!!"), ".x", func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), errors.New("half way"))
	}); err == nil {
		t.Error("a failure is no error")
	}

	entries, err := filepath.Glob(filepath.Join(s.Cache, "thing-*"))
	if err != nil || len(entries) != 1 || entries[0] != second {
		t.Errorf("kept %v, %v; want %s", entries, err, second)
	}
}

// TestCPIO checks the fields of the format that the kernel reads.
func TestCPIO(t *testing.T) {
	var c cpio
	c.dir("d")
	c.file("d/f", []byte("12345"))

	got := string(c.bytes())
	if len(got)%4 != 0 {
		t.Errorf("%d bytes are no multiple of four", len(got))
	}

	want := "07070100000001000041ed" + strings.Repeat("0", 8*2) + "00000001" + strings.Repeat("0", 8*6) + "0000000200000000d\x00"
	if !strings.HasPrefix(got, want) {
		t.Errorf("the directory is %q, want %q", got[:len(want)], want)
	}

	_, rest, _ := strings.Cut(got, "070701"+"00000002")
	if !strings.HasPrefix(rest, "000081ed") || !strings.Contains(rest, "00000005") || !strings.Contains(rest, "d/f\x00") || !strings.Contains(rest, "12345\x00\x00\x00") {
		t.Errorf("the file is %q", rest)
	}
	if !strings.Contains(got, "TRAILER!!!\x00") {
		t.Error("no trailer")
	}
}

func TestLoadOrder(t *testing.T) {
	o := &loadOrder{modules: map[string]string{}, builtin: "kernel/fs/ext4/ext4.ko\n"}
	if err := o.add("ext4"); err != nil || len(o.files) != 0 {
		t.Errorf("a built-in module: %v, %v", o.files, err)
	}
	if err := o.add("nothing"); err == nil {
		t.Error("a missing module is not an error")
	}
}

func TestStatic(t *testing.T) {
	if err := static(filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("a missing program is accepted as static")
	}

	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := static(script); err == nil {
		t.Error("a script is a static program")
	}

	// Dynamically linked programs are not static.
	libraries, err := librariesOf(t.Context(), "/bin/ls")
	if err != nil || len(libraries) == 0 {
		t.Skipf("/bin/ls is no dynamic program here: %v", err)
	}

	if err := static("/bin/ls"); err == nil || !strings.Contains(err.Error(), "dynamic linker") {
		t.Errorf("a dynamic program: %v", err)
	}
}

// TestWithCommands: the error for a missing command names the make target that builds it.
func TestWithCommands(t *testing.T) {
	s := Set{Kit: filepath.Join(t.TempDir(), "nodekit")}
	if _, err := s.WithCommands("crane-agent"); err == nil || !strings.Contains(err.Error(), "make build-nodes") {
		t.Errorf("%v", err)
	}
	if got, err := s.WithCommands(); err != nil || len(got.Commands) > 0 {
		t.Errorf("no command: %+v, %v", got.Commands, err)
	}
}
