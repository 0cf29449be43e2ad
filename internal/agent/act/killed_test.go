// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/internal/agent/host/cgroup"
)

// killingWriter simulates an agent that is killed before or after a write.
type killingWriter struct {
	FileWriter
	left  *int
	after bool
}

type killedPanic struct{}

func (m killingWriter) Write(file, value string) error {
	*m.left--

	if *m.left < 0 && !m.after {
		panic(killedPanic{})
	}

	err := m.FileWriter.Write(file, value)
	if *m.left < 0 {
		panic(killedPanic{})
	}

	return err
}

// journalAction is a kind of change, with the settings before it.
type journalAction struct {
	before map[string]string // by file of the container's cgroup, or of the pod's after a slash
	do     func(n fixture, j *Journal) error
}

// change returns a change of the container's cgroup, or of the pod's if the file starts with a slash.
func (n fixture) to(file, value string) Change {
	group := n.group
	if rest, ok := strings.CutPrefix(file, "/"); ok {
		group = filepath.Dir(group)
		file = rest
	}

	return Change{Group: group, File: file, Value: value}
}

func unit(changes ...Change) Unit { return Unit{Key: "test/c", Subject: "batch/hog", Changes: changes} }

func throttleAll(n fixture, j *Journal) error {
	th := NewThrottler(n.layout, j)
	for _, s := range steps() {
		s.Weight = 0.5
		if err := th.Throttle(s, n.group); err != nil {
			return err
		}
	}

	return nil
}

func inTurn(units ...func(n fixture) Unit) func(fixture, *Journal) error {
	return func(n fixture, j *Journal) error {
		for _, u := range units {
			if err := j.Change(u(n)); err != nil {
				return err
			}
		}

		return j.UndoAll()
	}
}

// journalActions returns all kinds of changes by name and cgroup version.
func journalActions(v1 bool) map[string]journalAction {
	all := map[string]journalAction{
		"cpus": {map[string]string{"/cpuset.cpus": "0-3", "cpuset.cpus": "0-3"}, inTurn(
			func(n fixture) Unit { return unit(n.to("cpuset.cpus", "1"), n.to("cpuset.mems", "0")) },
			func(n fixture) Unit { return unit(n.to("cpuset.cpus", "0,2")) },
		)},
		"cpus of pod and container": {map[string]string{"/cpuset.cpus": "0-3", "cpuset.cpus": "0-3"}, inTurn(
			func(n fixture) Unit { return unit(n.to("cpuset.cpus", "1"), n.to("/cpuset.cpus", "1-2")) },
			func(n fixture) Unit { return unit(n.to("/cpuset.cpus", "1-3"), n.to("cpuset.cpus", "1-3")) },
		)},
	}

	if v1 {
		all["quota and burst"] = journalAction{map[string]string{"cpu.cfs_quota_us": "40000", "cpu.cfs_burst_us": "20000"}, throttleAll}
		all["quota and burst in a pod"] = journalAction{map[string]string{"/cpu.cfs_quota_us": "40000", "/cpu.shares": "512", "cpu.cfs_quota_us": "40000", "cpu.cfs_burst_us": "20000"}, throttleAll}
		all["shares"] = journalAction{map[string]string{"cpu.shares": "512"}, inTurn(
			func(n fixture) Unit { return unit(n.to("cpu.shares", "128")) },
			func(n fixture) Unit { return unit(n.to("cpu.shares", "2")) },
		)}
		all["idle"] = journalAction{map[string]string{"cpu.shares": "512"}, inTurn(
			func(n fixture) Unit { return unit(n.to("cpu.shares", "2"), n.to("cpu.idle", "1")) },
			func(n fixture) Unit { return unit(n.to("cpu.idle", "0")) },
		)}

		all["quota of pod and container"] = journalAction{map[string]string{"/cpu.cfs_quota_us": "80000", "cpu.cfs_quota_us": "40000"}, inTurn(
			func(n fixture) Unit {
				return unit(n.to("cpu.cfs_quota_us", "20000"), n.to("/cpu.cfs_quota_us", "30000"))
			},
			func(n fixture) Unit {
				return unit(n.to("/cpu.cfs_quota_us", "90000"), n.to("cpu.cfs_quota_us", "85000"))
			},
		)}

		return all
	}

	all["quota and burst"] = journalAction{map[string]string{"cpu.max": "40000", "cpu.max.burst": "20000"}, throttleAll}
	all["quota and burst in a pod"] = journalAction{map[string]string{"/cpu.max": "40000", "/cpu.weight": "39", "cpu.max": "40000", "cpu.max.burst": "20000"}, throttleAll}
	all["cpus, where there were none"] = journalAction{nil, inTurn(func(n fixture) Unit { return unit(n.to("cpuset.cpus", "1")) })}
	all["weight"] = journalAction{map[string]string{"cpu.weight": "39"}, inTurn(
		func(n fixture) Unit { return unit(n.to("cpu.weight", "20")) },
		func(n fixture) Unit { return unit(n.to("cpu.weight", "1")) },
	)}

	all["idle"] = journalAction{map[string]string{"cpu.weight": "39"}, inTurn(
		func(n fixture) Unit { return unit(n.to("cpu.weight", "1"), n.to("cpu.idle", "1")) },
		func(n fixture) Unit { return unit(n.to("cpu.idle", "0")) },
	)}

	all["memory.high"] = journalAction{map[string]string{"memory.high": "100000000"}, inTurn(
		func(n fixture) Unit { return unit(n.to("memory.high", "90000001")) },
		func(n fixture) Unit { return unit(n.to("memory.high", "80000000")) },
	)}
	all["quota and weight"] = journalAction{map[string]string{"cpu.max": "40000", "/cpu.max": "80000", "cpu.weight": "39"}, inTurn(
		func(n fixture) Unit {
			return unit(n.to("cpu.max", "20000"), n.to("/cpu.max", "20000"), n.to("cpu.weight", "10"))
		},
		func(n fixture) Unit {
			return unit(n.to("/cpu.max", "30000"), n.to("cpu.max", "30000"), n.to("cpu.weight", "20"))
		},
	)}

	return all
}

// settings reads the settings of the pod's and the container's cgroup.
func (n fixture) settings(t *testing.T) map[string]string {
	t.Helper()

	out := map[string]string{}
	for _, group := range []string{n.group, filepath.Dir(n.group)} {
		for _, file := range []string{"cpu.max", "cpu.max.burst", "cpu.weight", "cpu.cfs_quota_us", "cpu.cfs_burst_us", "cpu.shares", "cpu.idle", "cpuset.cpus", "cpuset.mems", "memory.high"} {
			path, err := n.layout.SettingFile(group, file)
			if err != nil {
				continue
			}

			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}

			value := strings.TrimSpace(string(content))
			if n.layout.Version == cgroup.V2 && strings.HasPrefix(file, "cpuset.") && value == "" {
				// A cgroup with processes cannot be reset to an empty list and gets the effective one.
				content, err := os.ReadFile(path + ".effective")
				if err != nil {
					t.Fatal(err)
				}

				value = strings.TrimSpace(string(content))
			}

			out[group+" "+file] = value
		}
	}

	return out
}

// prepare creates a node in the state before an action.
func (a journalAction) prepare(t *testing.T, v1 bool) fixture {
	t.Helper()

	n := newFixture(t, v1)
	// cgroup v1 limits a container to its pod's limit; the pod sorts first.
	for _, file := range slices.Sorted(maps.Keys(a.before)) {
		value := a.before[file]
		c := n.to(file, value)
		path, err := n.layout.SettingFile(c.Group, c.File)
		if err != nil {
			t.Fatal(err)
		}

		if err := n.tree.Write(path, value); err != nil {
			t.Fatal(err)
		}
	}

	return n
}

// files reads all files of the node's cgroups.
func (n fixture) files(t *testing.T) map[string]string {
	t.Helper()

	out := map[string]string{}
	if err := filepath.WalkDir(filepath.Join(filepath.Dir(n.journal), "sys"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		content, err := os.ReadFile(path)
		out[path] = string(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}

	return out
}

// reset restores a node, which is faster than creating another.
func (n fixture) reset(t *testing.T, files map[string]string) {
	t.Helper()

	for path, now := range n.files(t) {
		if now == files[path] {
			continue
		}

		if err := os.WriteFile(path, []byte(files[path]), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Remove(n.journal); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// run runs an action with an agent that is killed at a write, and starts the next agent; forgetful removes the journal in between.
func (a journalAction) run(t *testing.T, n fixture, at int, after, forgetful bool) (died bool, changed []string) {
	t.Helper()

	before := n.settings(t)
	left := at
	died = dies(t, func() error {
		j := n.open(t, killingWriter{n.tree, &left, after})
		j.replace = replaceUnsynced
		return a.do(n, j)
	})

	if forgetful {
		if err := os.Remove(n.journal); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}

	// What an interrupted write of the journal leaves.
	if err := os.WriteFile(n.journal+".tmp", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}

	return died, n.undone(t, before)
}

// undone starts an agent, which undoes its journal, and returns the settings that still differ.
func (n fixture) undone(t *testing.T, before map[string]string) (changed []string) {
	t.Helper()

	next := n.open(t, n.tree)
	next.replace = replaceUnsynced
	if err := next.UndoAll(); err != nil {
		t.Error(err)
	}
	if len(next.Entries()) > 0 || len(n.open(t, n.tree).Entries()) > 0 {
		t.Errorf("after UndoAll of the next agent the journal has %+v, want no entries", next.Entries())
	}

	for file, value := range n.settings(t) {
		if !cgroup.EqualSettings(filepath.Base(strings.Fields(file)[1]), value, before[file]) {
			changed = append(changed, file+": "+value+", was "+before[file])
		}
	}

	return changed
}

// replaceUnsynced is atomicfile.Replace without syncing, which would take a minute in this test.
func replaceUnsynced(path string, content []byte) error {
	return errors.Join(os.WriteFile(path+".tmp", content, 0o600), os.Rename(path+".tmp", path))
}

func dies(t *testing.T, do func() error) (died bool) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killedPanic); !ok {
				panic(r)
			}

			died = true
		}
	}()

	if err := do(); err != nil {
		t.Error(err)
	}

	return false
}

// TestKilled checks that the next start undoes an agent killed at any write of any action, and that without the journal it would not.
func TestKilled(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for name, a := range journalActions(v1) {
			t.Run(map[bool]string{false: "v2 ", true: "v1 "}[v1]+name, func(t *testing.T) {
				points, damage := 0, 0
				n := a.prepare(t, v1)
				files := n.files(t)
				for died := true; died; {
					for _, after := range []bool{false, true} {
						var changed []string
						n.reset(t, files)

						if died, changed = a.run(t, n, points, after, false); len(changed) > 0 {
							t.Errorf("killed at write %d, after it %t: settings %v, want the original ones", points, after, changed)
						}

						n.reset(t, files)
						if _, changed = a.run(t, n, points, after, true); len(changed) > 0 {
							damage++
						}
					}

					points++

					if points > 100 {
						t.Fatal("the action needs more than 100 writes, want it to end")
					}
				}

				if points < 3 || damage < 2 {
					t.Errorf("killed at %d writes, of which %d would do damage without a journal; want at least 2 each", points-1, damage)
				}
			})
		}
	}
}
