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

	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/checksum"
)

// weightOf returns a unit that sets the weight of the container.
func (n fixture) weightOf(key, value string) Unit {
	file := cgroup.FileWeight
	if n.layout.Version != cgroup.V2 {
		file = cgroup.FileSharesV1
	}

	return Unit{Key: key, Subject: "batch/hog", Changes: []Change{{Group: n.group, File: file, Value: value}}}
}

func (n fixture) weight(t *testing.T) string {
	t.Helper()

	file := "cpu.weight"
	if n.layout.Version != cgroup.V2 {
		file = "cpu.shares"
	}

	content, err := os.ReadFile(filepath.Join(n.tree.Dir, n.group, file))
	if err != nil {
		t.Fatal(err)
	}

	return strings.TrimSpace(string(content))
}

func (n fixture) change(t *testing.T, j *Journal, key, value string) {
	t.Helper()

	if err := j.Change(n.weightOf(key, value)); err != nil {
		t.Fatal(err)
	}
}

func TestChangeAndUndo(t *testing.T) {
	n := newFixture(t, false)
	j := n.open(t, n.tree)
	n.change(t, j, "weight/c", "50")
	n.change(t, j, "weight/c", "20")

	if got := n.weight(t); got != "20" {
		t.Errorf("weight %s, want 20", got)
	}

	e, ok := n.open(t, n.tree).Entry("weight/c")
	if want := (FileRecord{Group: n.group, File: "cpu.weight", Original: "100", Set: "20", Before: "50"}); !ok || len(e.Files) != 1 || e.Files[0] != want {
		t.Errorf("the next start reads %+v, want %+v", e, want)
	}
	if err := j.Undo("weight/other"); err != nil || n.weight(t) != "20" {
		t.Errorf("Undo of an unknown unit = %v with weight %s, want nil and weight 20", err, n.weight(t))
	}
	if err := j.Undo("weight/c"); err != nil || n.weight(t) != "100" || len(n.open(t, n.tree).Entries()) > 0 {
		t.Errorf("Undo(weight/c) = %v with weight %s and entries %+v, want nil, weight 100 and none", err, n.weight(t), j.Entries())
	}
}

// TestLayers checks that two units can change one file and be undone in any order.
func TestLayers(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(j *Journal, change func(key, value string)) error
		want string
	}{
		"both":            {func(*Journal, func(string, string)) error { return nil }, "20"},
		"upper undone":    {func(j *Journal, _ func(string, string)) error { return j.Undo("b/x") }, "50"},
		"lower undone":    {func(j *Journal, _ func(string, string)) error { return j.Undo("a/x") }, "20"},
		"lower, upper":    {func(j *Journal, _ func(string, string)) error { return errors.Join(j.Undo("a/x"), j.Undo("b/x")) }, "100"},
		"all":             {func(j *Journal, _ func(string, string)) error { return j.UndoAll() }, "100"},
		"one kind":        {func(j *Journal, _ func(string, string)) error { return j.UndoKind("b") }, "50"},
		"lower is raised": {func(_ *Journal, change func(string, string)) error { change("a/x", "70"); return nil }, "20"},
		"lower is raised, upper undone": {func(j *Journal, change func(string, string)) error {
			change("a/x", "70")
			return j.Undo("b/x")
		}, "70"},
		"lower is raised, all undone": {func(j *Journal, change func(string, string)) error {
			change("a/x", "70")
			return j.UndoAll()
		}, "100"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newFixture(t, false)
			j := n.open(t, n.tree)
			change := func(key, value string) { n.change(t, j, key, value) }
			change("a/x", "50")
			change("b/x", "20")

			if err := test.do(j, change); err != nil || n.weight(t) != test.want {
				t.Errorf("%v, weight %s, want %s", err, n.weight(t), test.want)
			}
			if err := n.open(t, n.tree).UndoAll(); err != nil || n.weight(t) != "100" {
				t.Errorf("undoThrottles after the next start = %v with weight %s, want nil and weight 100", err, n.weight(t))
			}
		})
	}
}

// TestRollBack checks that earlier writes of a unit are reverted if the kernel rejects a later one.
func TestRollBack(t *testing.T) {
	n := newFixture(t, false)
	j := n.open(t, n.tree)

	u := n.weightOf("both/c", "50")
	u.Changes = append(u.Changes, Change{Group: n.group, File: cgroup.FileMax, Value: "10 100000"})
	if err := j.Change(u); err == nil || n.weight(t) != "100" || len(j.Entries()) > 0 {
		t.Errorf("Change with a rejected value = %v with weight %s and entries %+v, want an error, weight 100 and none", err, n.weight(t), j.Entries())
	}

	n.change(t, j, "both/c", "70")
	if err := j.Change(u); err == nil || n.weight(t) != "70" {
		t.Errorf("the second Change with a rejected value = %v with weight %s, want an error and weight 70", err, n.weight(t))
	}
	if err := n.open(t, n.tree).UndoAll(); err != nil || n.weight(t) != "100" {
		t.Errorf("undoThrottles after the next start = %v with weight %s, want nil and weight 100", err, n.weight(t))
	}
}

// TestCondition checks that a quota is not restored after its period changed.
func TestCondition(t *testing.T) {
	n := newFixture(t, true)
	n.set(t, "40000", "0")

	th := n.throttler(t, n.tree)
	if err := th.Throttle(steps()[0], n.group); err != nil {
		t.Fatal(err)
	}

	if err := n.tree.Write(filepath.Join(n.tree.Dir, n.group, "cpu.cfs_period_us"), "50000"); err != nil {
		t.Fatal(err)
	}

	if err := undoThrottles(th); err != nil || n.limit(t) != "30ms of 50ms burst 0s" || len(th.journal.Entries()) > 0 {
		t.Errorf("undoThrottles = %v with limit %s, want nil and 30ms of the new period of 50ms", err, n.limit(t))
	}
}

// TestChangesNothingElse checks that only cgroup settings are written.
func TestChangesNothingElse(t *testing.T) {
	n := newFixture(t, false)
	j := n.open(t, filesFunc(func(file, _ string) error { t.Errorf("Change writes %s, want no write", file); return nil }))
	for _, c := range []Change{
		{Group: n.group, File: "cgroup.procs", Value: "1"},
		{Group: n.group, File: "cpu.shares", Value: "2"}, // cgroup v1's
		{Group: "../../" + n.group, File: "cpu.weight", Value: "2"},
		{Group: n.group, File: "../cpu.weight", Value: "2"},
		{Group: n.group, File: "cpu.weight", Value: "2\n3"},
		{Group: n.group, File: "cpu.weight", Value: strings.Repeat("1", maxValue+1)},
	} {
		if err := j.Change(Unit{Key: "x/y", Changes: []Change{c}}); !errors.Is(err, ErrJournal) {
			t.Errorf("Change(%.100v) = %v, want ErrJournal", c, err)
		}
	}

	if err := j.Change(Unit{Changes: n.weightOf("", "50").Changes}); !errors.Is(err, ErrJournal) {
		t.Errorf("without a key: %v", err)
	}
}

// TestFull checks the bound of a journal.
func TestFull(t *testing.T) {
	n := newFixture(t, false)
	j := n.open(t, n.tree)
	for i := range maxEntries {
		j.entries[fmt.Sprint(i)] = &Entry{Key: fmt.Sprint(i), Seq: uint64(i)}
	}

	if err := j.Change(n.weightOf("a/x", "50")); !errors.Is(err, ErrJournal) || n.weight(t) != "100" {
		t.Errorf("Change with a full journal = %v with weight %s, want ErrJournal and weight 100", err, n.weight(t))
	}
}

// written returns a journal file of a version.
func written(version int, entries string) []byte {
	return fmt.Appendf(nil, `{"version":%d,"checksum":%d,"entries":%s}`, version, checksum.Castagnoli([]byte(entries)), entries)
}

// TestFirstVersion checks that changes of the first journal version are undone.
func TestFirstVersion(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		n := newFixture(t, v1)
		n.set(t, "30000", "5000")
		content := written(1, `{"c":{"containerID":"c","group":"`+n.group+`","pod":"batch/hog","original":{"quota":40000,"period":100000,"burst":20000},`+
			`"set":{"quota":30000,"period":100000,"burst":5000},"before":{"quota":40000,"period":100000,"burst":20000}}}`)

		if err := os.WriteFile(n.journal, content, 0o600); err != nil {
			t.Fatal(err)
		}

		j := n.open(t, n.tree)
		if len(j.Entries()) != 1 {
			t.Fatalf("the journal of version 1 has entries %+v, want one", j.Entries())
		}

		if err := j.UndoAll(); err != nil || n.limit(t) != "40ms of 100ms burst 20ms" {
			t.Errorf("v1 %t: undoThrottles = %v with limit %s, want nil and the original 40ms with a burst of 20ms", v1, err, n.limit(t))
		}
	}
}

func TestDamagedJournal(t *testing.T) {
	n := newFixture(t, false)
	th := n.throttler(t, n.tree)
	if err := th.Throttle(steps()[0], n.group); err != nil {
		t.Fatal(err)
	}

	good, err := os.ReadFile(n.journal)
	if err != nil {
		t.Fatal(err)
	}

	for name, content := range map[string]string{
		"half": string(good[:len(good)/2]), "empty": "", "another version": strings.Replace(string(good), `"version":2`, `"version":0`, 1),
		"changed":     strings.Replace(string(good), "batch/hog", "batch/cow", 1),
		"null":        string(written(2, "[null]")),
		"other file":  string(written(2, `[{"key":"a","files":[{"group":"x","file":"cgroup.procs","original":"1","set":"1","before":"1"}]}]`)),
		"outside":     string(written(2, `[{"key":"a","files":[{"group":"../x","file":"cpu.max","original":"1","set":"1","before":"1"}]}]`)),
		"twice":       string(written(2, `[{"key":"a","files":[]},{"key":"a","files":[]}]`)),
		"first: zero": string(written(1, `{"c":{"containerID":"c","group":"x"}}`)),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(n.journal, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}

			j, err := OpenJournal(n.journal, n.layout, n.tree)
			if !errors.Is(err, ErrJournal) || j == nil || len(j.Entries()) > 0 {
				t.Fatalf("OpenJournal = %+v, %v, want an empty journal beside ErrJournal", j, err)
			}

			if bad, err := os.ReadFile(n.journal + ".bad"); err != nil || string(bad) != content {
				t.Errorf("the .bad file has %q, %v, want the damaged content", bad, err)
			}
		})
	}
}

// TestPausedJournal checks that a paused agent changes nothing and still undoes what it has changed.
func TestPausedJournal(t *testing.T) {
	n := newFixture(t, false)
	j := n.open(t, n.tree)
	n.change(t, j, "weight/a", "20")

	j.Stopped = func() bool { return true }
	if err := j.Change(n.weightOf("weight/a", "10")); !errors.Is(err, ErrPaused) || n.weight(t) != "20" {
		t.Errorf("Change while paused = %v with weight %s, want ErrPaused and weight 20", err, n.weight(t))
	}
	if err := j.UndoAll(); err != nil || n.weight(t) != "100" {
		t.Errorf("undoThrottles while paused = %v with weight %s, want nil and weight 100", err, n.weight(t))
	}
}

// TestNewerJournal checks that after a downgrade the journal of the newer agent is kept, and that this agent changes nothing without it: the
// newer one can undo its changes later.
func TestNewerJournal(t *testing.T) {
	n := newFixture(t, false)
	content := string(written(3, `[{"key":"a","kind":"of a later version"}]`))
	if err := os.WriteFile(n.journal, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	j, err := OpenJournal(n.journal, n.layout, n.tree)
	if j != nil || !errors.Is(err, ErrJournal) || !errors.Is(err, ErrNewerJournal) {
		t.Errorf("OpenJournal of a newer version = %+v, %v, want nil and ErrNewerJournal", j, err)
	}
	if kept, err := os.ReadFile(n.journal); err != nil || string(kept) != content {
		t.Errorf("the file of a newer version has %q, %v, want it unchanged", kept, err)
	}
	if _, err := os.Stat(n.journal + ".bad"); err == nil {
		t.Error("the file of a newer version was moved aside, want it to stay")
	}
}

// FuzzJournal checks that any file is rejected or contains only cgroup settings.
func FuzzJournal(f *testing.F) {
	f.Add(string(written(2, "[]")))
	f.Add(string(written(2, `[{"key":"a","seq":1,"files":[{"group":"x","file":"cpu.max","original":"max 100000","set":"5000 100000","before":"max 100000"}]}]`)))
	f.Add(string(written(1, `{"c":{"containerID":"c","group":"x","original":{"quota":4,"period":1},"set":{"quota":4,"period":1},"before":{"quota":4,"period":1}}}`)))
	n := newFixture(f, false)

	f.Fuzz(func(t *testing.T, content string) {
		j := &Journal{files: settingFiles{layout: n.layout}, entries: map[string]*Entry{}}
		if j.decode([]byte(content)) != nil {
			return
		}

		for _, e := range j.Entries() {
			for _, h := range e.Files {
				if !filepath.IsLocal(h.Group) || strings.Contains(h.File, "/") || strings.ContainsAny(h.Original+h.Set, "\n\x00") {
					t.Errorf("decode accepted entry %+v, want local groups, plain file names and single lines", e)
				}
			}
		}
	})
}

// TestSweep checks that records of ended pods and containers are removed and those of existing ones are kept and undone.
func TestSweep(t *testing.T) {
	n := newFixture(t, false)
	j := n.open(t, n.tree)
	j.replace = func(string, []byte) error { return nil } // thousands of times
	n.change(t, j, "weight/c", "20")

	most := 0
	for i := range 4 * minSweepFiles {
		group := fmt.Sprintf("kubepods/besteffort/podx/%d", i)
		if err := n.tree.Make(group); err != nil {
			t.Fatal(err)
		}

		key := "cpu/podx"
		if i%2 == 0 {
			key = fmt.Sprintf("cpu/pod%d", i)
		}

		if err := j.Change(Unit{Key: key, Subject: "batch/short", Changes: []Change{{Group: group, File: cgroup.FileWeight, Value: "50"}}}); err != nil {
			t.Fatal(err)
		}

		if err := n.tree.Remove(group); err != nil {
			t.Fatal(err)
		}

		held := 0
		for _, e := range j.Entries() {
			held += len(e.Files)
		}
		most = max(most, held)
	}

	if most > minSweepFiles+1 {
		t.Errorf("the journal has up to %d files, want at most %d: only one exists", most, minSweepFiles+1)
	}
	if err := j.UndoAll(); err != nil || n.weight(t) != "100" || len(j.Entries()) > 0 {
		t.Errorf("undoThrottles = %v with weight %s and %d entries, want nil, weight 100 and none", err, n.weight(t), len(j.Entries()))
	}
}
