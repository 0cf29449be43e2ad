// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestWriteReturnsEAGAIN checks that a pollable file that returns EAGAIN is not waited for, which would block all further memory limits. A
// full pipe stands for memory.reclaim.
func TestWriteReturnsEAGAIN(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}

	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()

	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 4096))
	}

	if !errors.Is(err, syscall.EAGAIN) {
		t.Fatal(err)
	}

	said := make(chan error, 1)
	go func() { said <- KernelFileWriter{}.Write(path, "1") }()

	select {
	case err := <-said:
		if !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("Write = %v, want %v", err, syscall.EAGAIN)
		}
	case <-time.After(time.Minute):
		t.Error("Write waits after EAGAIN, want it to return the error")
	}
}

// TestWriteCreatesNothing checks that a missing file is not created and that an empty value is written as a line.
func TestWriteCreatesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := (KernelFileWriter{}).Write(path, "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := (KernelFileWriter{}).Write(path, ""); err != nil {
		t.Fatal(err)
	}

	if got, err := os.ReadFile(path); err != nil || string(got) != "\n" {
		t.Errorf("the file has %q, %v, want an empty line", got, err)
	}
}
