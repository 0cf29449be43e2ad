// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Group is one cgroup in each of several hierarchies: the directories that make it up.
type Group struct {
	Dirs []string `json:"dirs"`
}

// needed are the controllers that a kubelet needs its groups to have on cgroup v2.
func needed() []string { return []string{"cpuset", "cpu", "io", "memory", "pids"} }

// Plan says which directories Make would make: below the process's own groups of all v1 hierarchies and of a v2 hierarchy
// beside them; or, on a host with v2 alone, in the nearest group upwards that passes all needed controllers on.
func (h Host) Plan(name string) (Group, error) {
	var g Group
	for _, v := range h.V1 {
		g.Dirs = append(g.Dirs, filepath.Join(v.Own, name))
	}
	if h.Unified == nil {
		return g, nil
	}
	parent := h.Unified.Own
	if len(h.V1) == 0 {
		var err error
		if parent, err = delegating(*h.Unified); err != nil {
			return g, err
		}
	}
	g.Dirs = append(g.Dirs, filepath.Join(parent, name))
	return g, nil
}

// Make makes a group of that name as planned.
func (h Host) Make(name string) (Group, error) {
	planned, err := h.Plan(name)
	if err != nil {
		return Group{}, err
	}
	var g Group
	for _, dir := range planned.Dirs {
		if err := g.add(dir); err != nil {
			return Group{}, errors.Join(err, g.Remove(time.Second))
		}
		if err := weigh(dir); err != nil {
			return Group{}, errors.Join(err, g.Remove(time.Second))
		}
	}
	return g, nil
}

// taskShares is what the kernel gives a process of nice 0 in cpu.shares.
const taskShares = 1024

// weigh makes a v1 group count as one process per CPU. Beside processes that are in no group it would count as a single one,
// however many are in it, and be slow on a busy machine. On version 2 everything else is in groups as well.
func weigh(dir string) error {
	file := filepath.Join(dir, "cpu.shares")
	if _, err := os.Stat(file); err != nil {
		return nil //nolint:nilerr // another controller's hierarchy
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(taskShares*max(2, runtime.NumCPU()))), 0); err != nil {
		return fmt.Errorf("make cgroup: give it a weight: %w", err)
	}
	return nil
}

// Child makes a group below g in all its hierarchies.
func (g Group) Child(name string) (Group, error) {
	var child Group
	for _, dir := range g.Dirs {
		if err := passOn(dir); err != nil {
			return Group{}, errors.Join(err, child.Remove(time.Second))
		}
		if err := child.add(filepath.Join(dir, name)); err != nil {
			return Group{}, errors.Join(err, child.Remove(time.Second))
		}
	}
	return child, nil
}

// add makes one directory. A new group of v1's cpuset has neither CPUs nor memory until someone gives it some.
func (g *Group) add(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	g.Dirs = append(g.Dirs, dir)
	if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
		return nil // v2 inherits
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), content, 0)
		}
		if err != nil {
			return fmt.Errorf("make cgroup: give it CPUs and memory: %w", err)
		}
	}
	return nil
}

// delegating is the nearest group from the process's own upwards whose children have all needed controllers.
func delegating(h Hierarchy) (string, error) {
	for dir := h.Own; ; dir = filepath.Dir(dir) {
		have, err := words(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil {
			return "", fmt.Errorf("find a cgroup to make nodes in: %w", err)
		}
		missing := slices.DeleteFunc(needed(), func(c string) bool { return slices.Contains(have, c) })
		if len(missing) == 0 {
			return dir, nil
		}
		if dir == h.Root {
			return "", fmt.Errorf("no cgroup from %s upwards passes on %s: the host's %s lacks them", h.Own,
				strings.Join(missing, ", "), filepath.Join(dir, "cgroup.subtree_control"))
		}
	}
}

// passOn gives the children of a v2 group that we have made all needed controllers that it has.
func passOn(dir string) error {
	have, err := words(filepath.Join(dir, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // v1
	}
	if err != nil {
		return fmt.Errorf("pass cgroup controllers on: %w", err)
	}
	for _, c := range needed() {
		if !slices.Contains(have, c) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("pass cgroup controller %s on: %w", c, err)
		}
	}
	return nil
}

func words(file string) ([]string, error) {
	content, err := os.ReadFile(file)
	return strings.Fields(string(content)), err
}

// Add moves a process into the group.
func (g Group) Add(pid int) error {
	for _, dir := range g.Dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("move process %d into cgroup: %w", pid, err)
		}
	}
	return nil
}

// retry is the time between two tries to remove a group whose processes are about to end.
const retry = 5 * time.Millisecond

// Remove kills what is still in the group and removes it with all groups below, within bound. A group that is not there is
// no error.
func (g Group) Remove(bound time.Duration) error {
	deadline := time.Now().Add(bound)
	var errs []error
	for _, dir := range g.Dirs {
		for {
			err := removeTree(dir)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				errs = append(errs, fmt.Errorf("remove cgroup: %w", err))
				break
			}
			kill(dir)
			time.Sleep(retry)
		}
	}
	return errors.Join(errs...)
}

// removeTree removes the directories from the deepest up; the files in them are the kernel's.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	err = syscall.Rmdir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// kill ends every process in the group at dir and below. Who is in a group that we have made is ours.
func kill(dir string) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "cgroup.procs" {
			return nil //nolint:nilerr // it is being removed
		}
		pids, err := words(path)
		if err != nil {
			return nil //nolint:nilerr // it has been removed
		}
		for _, p := range pids {
			if pid, err := strconv.Atoi(p); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return nil
	})
}
