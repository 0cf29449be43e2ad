// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/testbed/simnode/kernel"
	"crane.io/crane/pkg/qos"
)

// fixture is a host with one container in a fake kernel.
type fixture struct {
	tree    *kernel.Tree
	layout  cgroup.Layout
	group   string
	journal string
}

func newFixture(t testing.TB, v1 bool) fixture {
	t.Helper()

	dir := t.TempDir()
	n := fixture{group: "kubepods/besteffort/podx/c", journal: filepath.Join(dir, "journal")}

	base := filepath.Join(dir, "sys/fs/cgroup")
	n.tree = &kernel.Tree{Dir: base}
	if v1 {
		n.tree = &kernel.Tree{Dir: filepath.Join(base, "cpu,cpuacct"), V1: true}
	}

	n.makeGroups(t, v1)
	var err error
	if n.layout, err = cgroup.Detect(host.Root(dir)); err != nil {
		t.Fatal(err)
	}

	return n
}

// makeGroups creates the container's cgroup with a process.
func (n fixture) makeGroups(t testing.TB, v1 bool) {
	t.Helper()

	if err := n.tree.Make(n.group); err != nil {
		t.Fatal(err)
	}

	parts := strings.Split(n.group, "/")
	for i := range parts {
		for file, value := range map[string]string{"cpuset.cpus": "0-3", "cpuset.mems": "0"} {
			// cgroup v1 accepts no process without them.
			if err := n.tree.Write(filepath.Join(n.tree.Dir, "../cpuset", filepath.Join(parts[:i+1]...), file), value); v1 && err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := n.tree.Attach(n.group, 1); err != nil {
		t.Fatal(err)
	}
}

func (n fixture) limit(t *testing.T) string {
	t.Helper()

	b, burst, err := n.layout.ReadLimit(&host.Reader{}, n.group)
	if err != nil {
		t.Fatal(err)
	}

	if b.Unlimited() {
		return fmt.Sprintf("none burst %s", burst)
	}

	return fmt.Sprintf("%s of %s burst %s", b.Quota, b.Period, burst)
}

func (n fixture) set(t *testing.T, quota, burst string) {
	t.Helper()

	q, b := n.layout.LimitFiles(n.group)
	for _, w := range [][2]string{{q, quota}, {b, burst}} {
		if err := n.tree.Write(w[0], w[1]); err != nil {
			t.Fatal(err)
		}
	}
}

func (n fixture) open(t *testing.T, files FileWriter) *Journal {
	t.Helper()

	j, err := OpenJournal(n.journal, n.layout, files)
	if err != nil {
		t.Fatal(err)
	}

	return j
}

func (n fixture) throttler(t *testing.T, files FileWriter) *Throttler {
	t.Helper()
	return NewThrottler(n.layout, n.open(t, files))
}

func plan(from, to, original qos.Quota) qos.Throttle {
	return qos.Throttle{ContainerID: "c", Pod: qos.PodRef{Namespace: "batch", Name: "hog"}, From: from, To: to, Original: original}
}

// steps returns two reductions, a raise and the full restore.
func steps() []qos.Throttle {
	return []qos.Throttle{plan(400, 300, 400), plan(300, 100, 400), plan(100, 200, 400), plan(200, 400, 400)}
}

func TestThrottleAndRestore(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		n := newFixture(t, v1)
		n.set(t, "40000", "20000")

		th := n.throttler(t, n.tree)
		for i, want := range []string{"30ms of 100ms burst 20ms", "10ms of 100ms burst 10ms", "20ms of 100ms burst 20ms", "40ms of 100ms burst 20ms"} {
			if err := th.Throttle(steps()[i], n.group); err != nil {
				t.Fatal(err)
			}

			if got := n.limit(t); got != want {
				t.Errorf("v1 %t, step %d: %s, want %s", v1, i, got, want)
			}
		}

		if left := n.throttler(t, n.tree).journal.Entries(); len(left) > 0 {
			t.Errorf("after the last step the journal has %+v, want no entries", left)
		}

		// Without a limit.
		n.set(t, map[bool]string{true: "-1", false: "max"}[v1], "0")

		if err := th.Throttle(plan(qos.Unlimited, 5, qos.Unlimited), n.group); err != nil || n.limit(t) != "1ms of 100ms burst 0s" {
			t.Errorf("Throttle of an unlimited container = %v with limit %s, want nil and the least that there is", err, n.limit(t))
		}
		if err := undoThrottles(th); err != nil || n.limit(t) != "none burst 0s" {
			t.Errorf("undoThrottles = %v with limit %s, want nil and no limit", err, n.limit(t))
		}
	}
}

// TestNotOurs checks that a limit set by the kubelet meanwhile is kept.
func TestNotOurs(t *testing.T) {
	n := newFixture(t, false)
	n.set(t, "40000", "0")

	th := n.throttler(t, n.tree)
	if err := th.Throttle(steps()[0], n.group); err != nil {
		t.Fatal(err)
	}

	n.set(t, "70000", "0")
	if err := undoThrottles(th); err != nil || n.limit(t) != "70ms of 100ms burst 0s" {
		t.Errorf("undoThrottles = %v with limit %s, want nil and the 70ms of another process", err, n.limit(t))
	}
	// It is also what the next throttle restores.
	if err := th.Throttle(plan(700, 300, 700), n.group); err != nil {
		t.Fatal(err)
	}

	if err := undoThrottles(th); err != nil || n.limit(t) != "70ms of 100ms burst 0s" {
		t.Errorf("undoThrottles after another throttle = %v with limit %s, want nil and the 70ms of another process", err, n.limit(t))
	}
}

func TestGone(t *testing.T) {
	n := newFixture(t, false)
	th := n.throttler(t, n.tree)
	if err := th.Throttle(steps()[0], n.group); err != nil {
		t.Fatal(err)
	}

	if err := os.RemoveAll(filepath.Join(n.tree.Dir, n.group)); err != nil {
		t.Fatal(err)
	}

	if err := th.Throttle(steps()[1], n.group); err != nil || len(th.journal.Entries()) > 0 {
		t.Errorf("Throttle of a container that is gone = %v with entries %v, want nil and none", err, th.journal.Entries())
	}
}

// TestFullDisk checks that nothing is changed without a journal.
func TestFullDisk(t *testing.T) {
	n := newFixture(t, false)
	n.set(t, "40000", "0")

	n.journal = filepath.Join(t.TempDir(), "not/there/journal")
	th := n.throttler(t, n.tree)
	if err := th.Throttle(steps()[0], n.group); !errors.Is(err, ErrJournal) {
		t.Errorf("%v, want %v", err, ErrJournal)
	}
	if got := n.limit(t); got != "40ms of 100ms burst 0s" || len(th.journal.Entries()) > 0 {
		t.Errorf("without a journal the limit is %s and the entries are %v, want the original 40ms and none", got, th.journal.Entries())
	}
}

// TestRefused checks that a value rejected by the kernel is an error and can be undone.
func TestRefused(t *testing.T) {
	n := newFixture(t, false)
	n.set(t, "40000", "0")
	refusing := filesFunc(func(file, _ string) error { return fmt.Errorf("%s: invalid argument", file) })

	th := n.throttler(t, refusing)
	if err := th.Throttle(steps()[0], n.group); err == nil || !strings.Contains(err.Error(), "batch/hog") {
		t.Errorf("Throttle with rejected writes = %v, want an error that names pod batch/hog", err)
	}
	if err := undoThrottles(n.throttler(t, n.tree)); err != nil || n.limit(t) != "40ms of 100ms burst 0s" {
		t.Errorf("undoThrottles of the next agent = %v with limit %s, want nil and the original 40ms", err, n.limit(t))
	}
}

type filesFunc func(file, value string) error

func (f filesFunc) Write(file, value string) error { return f(file, value) }

// TestKernelFilesReplace checks that nothing of a longer value remains.
func TestKernelFilesReplace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpu.max")
	if err := os.WriteFile(file, []byte("130800 100000\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := (KernelFileWriter{}).Write(file, "97600 100000"); err != nil {
		t.Fatal(err)
	}

	if content, err := os.ReadFile(file); err != nil || string(content) != "97600 100000\n" {
		t.Errorf("the file has %q, %v, want the written value and a newline", content, err)
	}
}

func TestKernelFilesMakeNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpu.max")
	if err := (KernelFileWriter{}).Write(file, "max"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// undoThrottles restores all throttled containers.
func undoThrottles(t *Throttler) error {
	clear(t.throttled)
	return t.journal.UndoKind(KindCPU)
}
