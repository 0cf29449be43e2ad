// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package durablefile

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestSeal(t *testing.T) {
	sealed, err := Seal(3, map[string]int{"a": 1})
	if err != nil {
		t.Fatal(err)
	}

	got := map[string]int{}
	if err := Open(3, sealed, &got); err != nil || got["a"] != 1 {
		t.Errorf("Open = %v, %v, want the sealed content", got, err)
	}

	for want, bad := range map[string]string{
		"invalid JSON":            string(sealed[:len(sealed)/2]),
		"version 4":               strings.Replace(string(sealed), `"version":3`, `"version":4`, 1),
		"checksum does not match": strings.Replace(string(sealed), `"a":1`, `"a":2`, 1),
	} {
		if err := Open(3, []byte(bad), &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}

	if err := Open(3, sealed, new(int)); err == nil || !strings.Contains(err.Error(), "content") {
		t.Errorf("into a number: %v", err)
	}
}

// TestLock checks that only one process holds the lock, and that closing the file releases it.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	file, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := Lock(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("the second has it as well: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}

	file, err = Lock(dir)
	if err != nil {
		t.Fatal("it is not free again: ", err)
	}
	defer file.Close()

	if _, err := Lock(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("Lock without a directory = nil, want an error")
	}
}
