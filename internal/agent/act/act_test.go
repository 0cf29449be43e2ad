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
	"crane.io/crane/internal/simnode/kernel"
	"crane.io/crane/pkg/qos"
)

// node is a host with one container in a fake kernel.
type node struct {
	tree    *kernel.Tree
	layout  cgroup.Layout
	group   string
	journal string
}

func newNode(t *testing.T, v1 bool) node {
	t.Helper()
	dir := t.TempDir()
	n := node{group: "kubepods/besteffort/podx/c", journal: filepath.Join(dir, "journal")}
	base := filepath.Join(dir, "sys/fs/cgroup")
	n.tree = &kernel.Tree{Dir: base}
	if v1 {
		n.tree = &kernel.Tree{Dir: filepath.Join(base, "cpu,cpuacct"), V1: true}
	}
	if err := n.tree.Make(n.group); err != nil {
		t.Fatal(err)
	}
	if !v1 {
		if err := os.WriteFile(filepath.Join(base, "cgroup.controllers"), []byte("cpu\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if n.layout, err = cgroup.Detect(host.Root(dir)); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n node) limit(t *testing.T) string {
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

func (n node) set(t *testing.T, quota, burst string) {
	t.Helper()
	q, b := n.layout.LimitFiles(n.group)
	if err := n.tree.Write(q, quota); err != nil {
		t.Fatal(err)
	}
	if err := n.tree.Write(b, burst); err != nil {
		t.Fatal(err)
	}
}

func (n node) throttler(t *testing.T, files Files) *Throttler {
	t.Helper()
	j, err := OpenJournal(n.journal)
	if err != nil {
		t.Fatal(err)
	}
	return NewThrottler(n.layout, files, j)
}

func plan(from, to, original qos.Quota) qos.Throttle {
	return qos.Throttle{ContainerID: "c", Pod: qos.PodRef{Namespace: "batch", Name: "hog"}, From: from, To: to, Original: original}
}

// steps are down twice, up once, and all back.
func steps() []qos.Throttle {
	return []qos.Throttle{plan(400, 300, 400), plan(300, 100, 400), plan(100, 200, 400), plan(200, 400, 400)}
}

func TestThrottleAndRestore(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		n := newNode(t, v1)
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
			t.Errorf("the journal still has %+v", left)
		}
		// Without a limit.
		n.set(t, map[bool]string{true: "-1", false: "max"}[v1], "0")
		if err := th.Throttle(plan(qos.Unlimited, 5, qos.Unlimited), n.group); err != nil || n.limit(t) != "1ms of 100ms burst 0s" {
			t.Errorf("%v, %s; want the least that there is", err, n.limit(t))
		}
		if err := th.UndoAll(); err != nil || n.limit(t) != "none burst 0s" {
			t.Errorf("%v, %s", err, n.limit(t))
		}
	}
}

// mortal is an agent that is killed at a write: before it or after it.
type mortal struct {
	Files
	left  *int
	after bool
}

type killed struct{}

func (m mortal) Write(file, value string) error {
	if *m.left--; *m.left < 0 && !m.after {
		panic(killed{})
	}
	err := m.Files.Write(file, value)
	if *m.left < 0 {
		panic(killed{})
	}
	return err
}

// TestKilled: an agent that is killed at any write of an action is undone by the next one.
func TestKilled(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			deaths := 0
			for at := range 7 {
				n := newNode(t, v1)
				n.set(t, "40000", "20000")
				if left := at; dies(t, n, mortal{n.tree, &left, after}) {
					deaths++
				}
				// What a write of the journal that was cut off leaves.
				if err := os.WriteFile(n.journal+".tmp", []byte("{"), 0o600); err != nil {
					t.Fatal(err)
				}
				next := n.throttler(t, n.tree)
				if err := next.UndoAll(); err != nil {
					t.Errorf("v1 %t, killed at %d: %v", v1, at, err)
				}
				if got := n.limit(t); got != "40ms of 100ms burst 20ms" || len(next.journal.Entries()) > 0 {
					t.Errorf("v1 %t, killed at %d, after %t: %s, %v left", v1, at, after, got, next.journal.Entries())
				}
			}
			if deaths < 5 {
				t.Errorf("the agent was killed at %d points only", deaths)
			}
		}
	}
}

func dies(t *testing.T, n node, files Files) (died bool) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
			died = true
		}
	}()
	th := n.throttler(t, files)
	for _, s := range steps() {
		if err := th.Throttle(s, n.group); err != nil {
			t.Error(err)
		}
	}
	return false
}

// TestNotOurs: what the kubelet has set meanwhile stays.
func TestNotOurs(t *testing.T) {
	n := newNode(t, false)
	n.set(t, "40000", "0")
	th := n.throttler(t, n.tree)
	if err := th.Throttle(steps()[0], n.group); err != nil {
		t.Fatal(err)
	}
	n.set(t, "70000", "0")
	if err := th.UndoAll(); err != nil || n.limit(t) != "70ms of 100ms burst 0s" {
		t.Errorf("%v, %s", err, n.limit(t))
	}
	// And it is what is put back after the next throttle.
	if err := th.Throttle(plan(700, 300, 700), n.group); err != nil {
		t.Fatal(err)
	}
	if err := th.UndoAll(); err != nil || n.limit(t) != "70ms of 100ms burst 0s" {
		t.Errorf("%v, %s", err, n.limit(t))
	}
}

func TestGone(t *testing.T) {
	n := newNode(t, false)
	th := n.throttler(t, n.tree)
	if err := th.Throttle(steps()[0], n.group); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(n.tree.Dir, n.group)); err != nil {
		t.Fatal(err)
	}
	if err := th.Throttle(steps()[1], n.group); err != nil || len(th.journal.Entries()) > 0 {
		t.Errorf("a container that is gone: %v, %v", err, th.journal.Entries())
	}
}

// TestFullDisk: without a journal nothing is changed.
func TestFullDisk(t *testing.T) {
	n := newNode(t, false)
	n.set(t, "40000", "0")
	n.journal = filepath.Join(t.TempDir(), "not/there/journal")
	th := n.throttler(t, n.tree)
	if err := th.Throttle(steps()[0], n.group); !errors.Is(err, ErrJournal) {
		t.Errorf("%v, want %v", err, ErrJournal)
	}
	if got := n.limit(t); got != "40ms of 100ms burst 0s" || len(th.journal.Entries()) > 0 {
		t.Errorf("%s, %v", got, th.journal.Entries())
	}
}

// TestRefused: what the kernel refuses is an error and can be undone.
func TestRefused(t *testing.T) {
	n := newNode(t, false)
	n.set(t, "40000", "0")
	refusing := filesFunc(func(file, _ string) error { return fmt.Errorf("%s: invalid argument", file) })
	th := n.throttler(t, refusing)
	if err := th.Throttle(steps()[0], n.group); err == nil || !strings.Contains(err.Error(), "batch/hog") {
		t.Errorf("%v", err)
	}
	if err := n.throttler(t, n.tree).UndoAll(); err != nil || n.limit(t) != "40ms of 100ms burst 0s" {
		t.Errorf("%v, %s", err, n.limit(t))
	}
}

type filesFunc func(file, value string) error

func (f filesFunc) Write(file, value string) error { return f(file, value) }

func TestKernelFilesMakeNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpu.max")
	if err := (KernelFiles{}).Write(file, "max"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestDamagedJournal(t *testing.T) {
	n := newNode(t, false)
	th := n.throttler(t, n.tree)
	if err := th.Throttle(steps()[0], n.group); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(n.journal)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"half": string(good[:len(good)/2]), "empty": "", "another version": strings.Replace(string(good), `"version":1`, `"version":2`, 1),
		"changed": strings.Replace(string(good), "batch/hog", "batch/cow", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(n.journal, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := OpenJournal(n.journal)
			if !errors.Is(err, ErrJournal) || j == nil || len(j.Entries()) > 0 {
				t.Fatalf("%+v, %v", j, err)
			}
			if bad, err := os.ReadFile(n.journal + ".bad"); err != nil || string(bad) != content {
				t.Errorf("moved aside: %q, %v", bad, err)
			}
		})
	}
}

// FuzzJournal: whatever the file holds, it is refused or its entries can be undone.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"version":1,"checksum":0,"entries":{}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		j := &Journal{entries: map[string]Entry{}}
		if j.decode(content) == nil {
			for _, e := range j.entries {
				if !filepath.IsLocal(e.Group) || e.Original.Period <= 0 {
					t.Errorf("%+v", e)
				}
			}
		}
	})
}
