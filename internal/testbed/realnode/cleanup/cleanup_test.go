// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/internal/testbed/realnode/hostcgroup"
)

// entry writes an entry that lists r.
func entry(t *testing.T, r Record) string {
	t.Helper()

	dir := filepath.Join(t.TempDir(), "entry")
	content, err := json.Marshal(r)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, recordFile), content, 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	return dir
}

func TestCleanRemovesWhatIsListed(t *testing.T) {
	state := filepath.Join(t.TempDir(), Prefix+"0a1b2c3d")
	group := filepath.Join(t.TempDir(), Prefix+"0a1b2c3d")
	for _, dir := range []string{filepath.Join(state, "logs"), filepath.Join(group, "node-1", "kubepods")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	dir := entry(t, Record{Group: hostcgroup.Group{Dirs: []string{group}}, Dirs: []string{state, state + "-never-made"}})
	if err := clean(dir); err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{state, group, dir} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s exists after clean, want it removed", path)
		}
	}

	if err := clean(dir); err != nil {
		t.Errorf("second clean = %v, want no error", err)
	}
}

func TestCleanRejectsForeignPaths(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "precious")
	if err := os.Mkdir(keep, 0o700); err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{keep, "relative/" + Prefix + "x", "/tmp/../" + Prefix + "x", ""} {
		if err := clean(entry(t, Record{Dirs: []string{path}})); err == nil || !strings.Contains(err.Error(), "not a path") {
			t.Errorf("clean of directory %q = %v, want an error", path, err)
		}
		if err := clean(entry(t, Record{Group: hostcgroup.Group{Dirs: []string{path}}})); err == nil {
			t.Errorf("clean of cgroup %q: no error, want one", path)
		}
	}

	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}

func TestWatchRefusesOtherDirectories(t *testing.T) {
	if err := Watch(t.TempDir(), strings.NewReader("")); err == nil {
		t.Error("Watch of another directory: no error, want one")
	}
}

func TestTrusted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	if err := checkOwner(dir); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}

	if err := checkOwner(dir); err == nil {
		t.Error("checkOwner of a directory that others may write to: no error, want one")
	}
}
