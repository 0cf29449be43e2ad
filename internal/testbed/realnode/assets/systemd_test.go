// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInstallSystemd: files of packages below /lib are installed in the merged /usr, links stay links, and systemd
// starts the node's first process as a service.
func TestInstallSystemd(t *testing.T) {
	systemd := t.TempDir()
	tree := filepath.Join(t.TempDir(), "tree")

	for name, content := range map[string]string{"lib/systemd/systemd": "init", "usr/bin/dbus-daemon": "bus", "etc/dbus-1/system.conf": "conf"} {
		path := filepath.Join(systemd, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Symlink("dbus-daemon", filepath.Join(systemd, "usr/bin/bus")); err != nil {
		t.Fatal(err)
	}

	if err := createTree(tree, nil); err != nil {
		t.Fatal(err)
	}

	if err := installSystemd(t.Context(), systemd, tree); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]string{
		"usr/lib/systemd/systemd": "init", "usr/bin/dbus-daemon": "bus", "etc/dbus-1/system.conf": "conf", "etc/passwd": "messagebus:",
		"etc/systemd/system/multi-user.target.wants/" + NodeUnit: "ExecStart=/init machine",
	} {
		if content, err := os.ReadFile(filepath.Join(tree, name)); err != nil || !strings.Contains(string(content), want) {
			t.Errorf("content of %s = %q, error %v; want %q", name, content, err, want)
		}
	}

	for name, want := range map[string]string{"lib": "usr/lib", "usr/bin/bus": "dbus-daemon", "etc/systemd/system/default.target": "/lib/systemd/system/multi-user.target"} {
		if link, err := os.Readlink(filepath.Join(tree, name)); err != nil || link != want {
			t.Errorf("link %s = %q, error %v; want %q", name, link, err, want)
		}
	}
}

// TestHasSystemd: a missing systemd is reported.
func TestHasSystemd(t *testing.T) {
	s := Set{Cache: t.TempDir()}
	if err := s.HasSystemd(); err == nil || !strings.Contains(err.Error(), "no systemd") {
		t.Errorf("HasSystemd() without packages = %v, want an error that says there is no systemd", err)
	}
	if err := os.Mkdir(filepath.Join(s.Cache, "systemd-1"), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := s.HasSystemd(); err != nil {
		t.Error(err)
	}
}
