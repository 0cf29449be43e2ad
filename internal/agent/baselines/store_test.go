// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package baselines

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/util/wait"

	"crane.io/crane/internal/agent/durablefile"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

func now() time.Time { return time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC) }

func learned() []qos.Baseline {
	return []qos.Baseline{{
		UID: "web", Waits: map[units.Resource][]float32{units.CPU: {0.01, 0.02}}, Uses: map[units.Resource][]float32{units.CPU: {500, 510.5}},
		Above: map[units.Resource]time.Time{units.CPU: now().Add(-time.Minute)},
	}}
}

// run lets a store write what was saved, as at the end.
func run(t *testing.T, k *Store) {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := k.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestKeep(t *testing.T) {
	config := Config{Path: filepath.Join(t.TempDir(), "state", "baselines.json"), BootID: "one", Mkdir: true, Log: logr.Discard()}
	k := New(config)
	if list, err := k.Load(now()); list != nil || err != nil {
		t.Errorf("Load without a file = %v, %v, want neither", list, err)
	}
	if k.Due(now()) || !k.Due(now().Add(time.Minute)) {
		t.Error("Due is true at the start or false a minute later, want the opposite")
	}

	k.Save(learned(), now())
	if k.Due(now().Add(59*time.Second)) || !k.Due(now().Add(time.Minute)) || !k.Due(now().Add(-time.Second)) {
		t.Error("Due is true within a minute of a save, or false after it or a clock set back; want the opposite")
	}

	run(t, k)
	for later, want := range map[time.Duration]string{
		0: "", 30 * time.Minute: "", -30 * time.Second: "", 31 * time.Minute: "is 31m0s old", -2 * time.Minute: "was written 2m0s in the future",
	} {
		list, err := New(config).Load(now().Add(later))
		if want == "" && (err != nil || !reflect.DeepEqual(list, learned())) || want != "" && (err == nil || !strings.Contains(err.Error(), want) || list != nil) {
			t.Errorf("%s later: %+v, %v, want %q", later, list, err, want)
		}
	}

	config.BootID = "two"
	if list, err := New(config).Load(now()); list != nil || err == nil || !strings.Contains(err.Error(), "rebooted") {
		t.Errorf("Load after a reboot = %v, %v, want the reboot as error", list, err)
	}
}

// TestAlsoRead checks that the other file is read if it is newer and usable, and never written.
func TestAlsoRead(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.json")
	own := filepath.Join(dir, "own.json")
	keep := func(path, uid string, at time.Time) {
		t.Helper()

		k := New(Config{Path: path, BootID: "one", Log: logr.Discard()})
		k.Save([]qos.Baseline{{UID: uid}}, at)
		run(t, k)
	}

	k := New(Config{Path: own, AlsoRead: other, BootID: "one", Log: logr.Discard()})
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"no file", func() {}, ""},
		{"the other's alone", func() { keep(other, "other", now()) }, "other"},
		{"its own is newer", func() { keep(own, "own", now().Add(time.Minute)) }, "own"},
		{"the other's is newer", func() { keep(other, "other", now().Add(2*time.Minute)) }, "other"},
		{"the other's is of no use", func() { keep(other, "other", now().Add(time.Hour)) }, "own"},
	} {
		step.do()
		list, err := k.Load(now().Add(2 * time.Minute))
		got := ""
		if len(list) > 0 {
			got = list[0].UID
		}
		if err != nil || got != step.want {
			t.Errorf("%s: %q, %v, want %q", step.name, got, err, step.want)
		}
	}

	if list, err := k.Load(now().Add(24 * time.Hour)); list != nil || err == nil || !strings.Contains(err.Error(), own) || !strings.Contains(err.Error(), other) {
		t.Errorf("Load of two old files = %v, %v, want both in the error", list, err)
	}

	before, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}

	k.Save(learned(), now())
	run(t, k)

	if after, err := os.ReadFile(other); err != nil || string(after) != string(before) {
		t.Errorf("the other's file was written: %v", err)
	}
}

// TestBadFiles checks that truncated, damaged, foreign and newer files are ignored and replaced by the next write.
func TestBadFiles(t *testing.T) {
	config := Config{Path: filepath.Join(t.TempDir(), "baselines.json"), BootID: "one", Log: logr.Discard()}
	k := New(config)
	k.Save(learned(), now())
	run(t, k)

	good, err := os.ReadFile(config.Path)
	if err != nil {
		t.Fatal(err)
	}

	newer, err := durablefile.Seal(version+1, content{Boot: "one", At: now(), Pods: learned()})
	if err != nil {
		t.Fatal(err)
	}

	journal, err := durablefile.Seal(version, []string{"another", "version"})
	if err != nil {
		t.Fatal(err)
	}

	for name, bad := range map[string]struct{ content, want string }{
		"empty":   {"", "invalid JSON"},
		"torn":    {string(good[:len(good)/2]), "invalid JSON"},
		"damaged": {strings.Replace(string(good), "510.5", "510.6", 1), "checksum"},
		"newer":   {string(newer), "version 2"},
		"foreign": {string(journal), "content"},
		"zeros":   {strings.Repeat("\x00", len(good)), "invalid JSON"},
		"huge":    {strings.Repeat(" ", maxBytes+1), "longer"},
	} {
		if err := os.WriteFile(config.Path, []byte(bad.content), 0o600); err != nil {
			t.Fatal(err)
		}

		k := New(config)
		if list, err := k.Load(now()); list != nil || err == nil || !strings.Contains(err.Error(), bad.want) || !strings.Contains(err.Error(), config.Path) {
			t.Errorf("%s: %v, %v, want %q", name, list, err, bad.want)
		}

		k.Save(learned(), now())
		run(t, k)

		if list, err := k.Load(now()); err != nil || len(list) != 1 {
			t.Errorf("%s, written again: Load = %v, %v, want one baseline", name, list, err)
		}
	}
}

// TestFullDisk checks that a failed write is logged once and keeps the previous file, and that writing resumes.
func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this host has no /dev/full: ", err)
	}

	var logged []string
	path := filepath.Join(t.TempDir(), "baselines.json")
	k := New(Config{Path: path, BootID: "one", Log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})})
	k.Save(learned(), now())
	run(t, k)

	// The temporary file of the replacement does not fit and is removed.
	for i := range 3 {
		if err := os.Symlink("/dev/full", path+".tmp"); err != nil {
			t.Fatal(err)
		}

		k.Save(nil, now().Add(time.Duration(i)*time.Minute))
		run(t, k)
	}

	if len(logged) != 1 || !strings.Contains(logged[0], "no space left") {
		t.Errorf("logged %q, want the full disk once", logged)
	}
	if list, err := k.Load(now()); err != nil || len(list) != 1 {
		t.Errorf("Load after a full disk = %v, %v, want the previous baseline", list, err)
	}

	k.Save(nil, now())
	run(t, k)

	if list, err := k.Load(now()); err != nil || len(list) != 0 {
		t.Errorf("Load after the disk has space = %v, %v, want an empty list", list, err)
	}
}

// TestNoDirectory checks that a missing directory is neither created nor reported without Mkdir.
func TestNoDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	k := New(Config{Path: filepath.Join(dir, "baselines.json"), BootID: "one", Log: funcr.New(func(_, args string) { t.Errorf("logged %s, want nothing", args) }, funcr.Options{})})
	k.Save(learned(), now())
	run(t, k)

	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was made: %v", err)
	}
}

// TestNothing checks that an empty list is not written without a file.
func TestNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baselines.json")
	k := New(Config{Path: path, BootID: "one", Log: logr.Discard()})
	k.Save(nil, now())
	run(t, k)

	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a file of nothing: %v", err)
	}
}

// TestRunWrites checks that lists are also written before the end.
func TestRunWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baselines.json")
	k := New(Config{Path: path, BootID: "one", Log: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	k.Save(learned(), now())

	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		list, err := New(k.config).Load(now())
		return err == nil && len(list) == 1, nil
	}); err != nil {
		t.Error("nothing was written within a minute: ", err)
	}

	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBootID(t *testing.T) {
	dir := t.TempDir()
	if id, err := BootID(host.Root(dir)); err == nil {
		t.Errorf("BootID without a file = %q, want an error", id)
	}

	file := filepath.Join(dir, "proc/sys/kernel/random/boot_id")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}

	for content, want := range map[string]string{"4a2f-11\n": "4a2f-11", "\n": ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		if id, err := BootID(host.Root(dir)); id != want || (err == nil) != (want != "") {
			t.Errorf("BootID of %q = %q, %v, want %q", content, id, err, want)
		}
	}
}
