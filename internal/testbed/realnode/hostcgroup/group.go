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

// Group is one cgroup in each of several hierarchies, identified by their directories.
type Group struct {
	Dirs []string `json:"dirs"`
}

// requiredControllers returns the cgroup v2 controllers that a kubelet requires.
func requiredControllers() []string { return []string{"cpuset", "cpu", "io", "memory", "pids"} }

// Plan returns the directories that Make creates: below the process's own cgroups of all v1 hierarchies and of a v2
// hierarchy beside them or, on a host with v2 only, in the nearest ancestor that delegates all required controllers.
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
		if parent, err = delegatingParent(*h.Unified); err != nil {
			return g, err
		}
	}

	g.Dirs = append(g.Dirs, filepath.Join(parent, name))
	return g, nil
}

// Make creates a group of that name as planned.
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

		if err := setCPUShares(dir); err != nil {
			return Group{}, errors.Join(err, g.Remove(time.Second))
		}
	}

	return g, nil
}

// taskShares is the kernel's weight of a process with nice 0 in cpu.shares.
const taskShares = 1024

// setCPUShares sets the weight of a v1 group to that of one process per CPU. The default is the weight of a single
// process, which is slow on a busy machine whose other processes are in no group. On v2 all processes are in groups.
func setCPUShares(dir string) error {
	file := filepath.Join(dir, "cpu.shares")
	if _, err := os.Stat(file); err != nil {
		return nil //nolint:nilerr // another controller's hierarchy
	}

	if err := os.WriteFile(file, []byte(strconv.Itoa(taskShares*max(2, runtime.NumCPU()))), 0); err != nil {
		return fmt.Errorf("creating cgroup: setting its weight: %w", err)
	}

	return nil
}

// Child creates a group below g in all its hierarchies.
func (g Group) Child(name string) (Group, error) {
	var child Group
	for _, dir := range g.Dirs {
		if err := enableControllers(dir); err != nil {
			return Group{}, errors.Join(err, child.Remove(time.Second))
		}

		if err := child.add(filepath.Join(dir, name)); err != nil {
			return Group{}, errors.Join(err, child.Remove(time.Second))
		}
	}

	return child, nil
}

// add creates one directory. A new v1 cpuset initially has neither CPUs nor memory nodes.
func (g *Group) add(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("creating cgroup: %w", err)
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
			return fmt.Errorf("creating cgroup: setting its CPUs and memory nodes: %w", err)
		}
	}

	return nil
}

// delegatingParent returns the nearest ancestor of the process's cgroup whose children have all required controllers.
func delegatingParent(h Hierarchy) (string, error) {
	for dir := h.Own; ; dir = filepath.Dir(dir) {
		delegated, err := words(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil {
			return "", fmt.Errorf("finding a cgroup for nodes: %w", err)
		}

		missing := slices.DeleteFunc(requiredControllers(), func(c string) bool { return slices.Contains(delegated, c) })
		if len(missing) == 0 {
			return dir, nil
		}

		if dir == h.Root {
			return "", fmt.Errorf("no cgroup from %s upwards delegates %s: the host's %s lacks them", h.Own,
				strings.Join(missing, ", "), filepath.Join(dir, "cgroup.subtree_control"))
		}
	}
}

// enableControllers enables all available required controllers for the children of a v2 group.
func enableControllers(dir string) error {
	available, err := words(filepath.Join(dir, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // v1
	}
	if err != nil {
		return fmt.Errorf("enabling cgroup controllers: %w", err)
	}

	for _, c := range requiredControllers() {
		if !slices.Contains(available, c) {
			continue
		}

		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("enabling cgroup controller %s: %w", c, err)
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
			return fmt.Errorf("moving process %d into cgroup: %w", pid, err)
		}
	}

	return nil
}

// retry is the interval between attempts to remove a group whose processes are exiting.
const retry = 5 * time.Millisecond

// Remove kills the processes of the group and removes it with all groups below, within bound. A missing group is not an
// error.
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
				errs = append(errs, fmt.Errorf("removing cgroup: %w", err))
				break
			}

			kill(dir)
			time.Sleep(retry)
		}
	}

	return errors.Join(errs...)
}

// removeTree removes the directories bottom-up; the kernel removes the files in them.
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

	// Rmdir and not os.RemoveAll, which would try to delete the kernel's files.
	err = syscall.Rmdir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}

	return nil
}

// kill kills every process in the group at dir and below.
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
