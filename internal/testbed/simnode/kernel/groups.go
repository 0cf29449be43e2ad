// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	fileControllers = "cgroup.controllers"
	fileSubtree     = "cgroup.subtree_control"
)

// knownControllers returns the v2 controllers in the kernel's order.
func knownControllers() []string { return []string{"cpuset", "cpu", "io", "memory", "pids"} }

// groupRules create groups and delegate controllers and processes to them.
type groupRules struct{ hierarchy }

// Make creates a group and its ancestors like a kubelet: on v2 each delegates all its controllers. Existing groups are
// not an error.
func (t *Tree) Make(group string) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	if err := t.hierarchy().groups().makeRoots(); err != nil {
		return err
	}

	parent := ""
	for part := range strings.SplitSeq(group, "/") {
		parentDir := filepath.Join(t.hierarchy().root("cpu"), parent)
		if !t.V1 {
			if err := t.hierarchy().groups().delegate(parentDir, "+"+strings.Join(strings.Fields(text(parentDir, fileControllers)), " +")); err != nil {
				return &os.PathError{Op: "write", Path: filepath.Join(parentDir, fileSubtree), Err: err}
			}
		}

		parent = filepath.Join(parent, part)
		if err := t.hierarchy().groups().mkdir(parent, true); err != nil {
			return err
		}
	}

	return nil
}

// Mkdir creates a group like mkdir(2): the parent must exist, the group must not, and on v2 it has the controllers that
// the parent delegates.
func (t *Tree) Mkdir(group string) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	if err := t.hierarchy().groups().makeRoots(); err != nil {
		return err
	}

	return t.hierarchy().groups().mkdir(group, false)
}

func (r groupRules) mkdir(group string, again bool) error {
	for controller, root := range r.roots() {
		dir := filepath.Join(root, group)
		if !exists(filepath.Dir(dir)) {
			return &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOENT}
		}

		// A directory without it is not a group yet, as in a recording that contains only some of its files.
		if exists(filepath.Join(dir, r.markerFile(controller))) {
			if again {
				continue
			}

			return &os.PathError{Op: "mkdir", Path: dir, Err: syscall.EEXIST}
		}

		if err := writeAll(dir, r.newFiles(controller, dir)); err != nil {
			return err
		}
	}

	return nil
}

// markerFile returns a file that every group with a controller has.
func (r groupRules) markerFile(controller string) string {
	switch {
	case !r.V1:
		return fileSubtree
	case controller == "cpuset":
		return "cpuset.cpus"
	case controller == "memory":
		return "memory.limit_in_bytes"
	case controller == "blkio":
		return servedFiles()[0]
	}

	return "cpu.shares"
}

// newFiles returns the files of a new group in a controller's hierarchy.
func (r groupRules) newFiles(controller, dir string) map[string]string {
	files := map[string]string{fileProcs: ""}
	if r.V1 {
		list := []string{controller}
		if !r.separate() {
			list = []string{"cpu", "cpuset", "memory", "blkio"}
		}

		// Version 1 has no delegation: every group has the files of all controllers of its hierarchy.
		for _, c := range list {
			maps.Copy(files, r.controlled(c, dir))
		}

		return files
	}

	// A v2 group has the controllers that its parent delegates.
	delegated := text(filepath.Dir(dir), fileSubtree)
	maps.Copy(files, map[string]string{
		fileControllers: delegated + "\n", fileSubtree: "\n", "cpu.stat": cpuStat{}.String(),
		"cpu.pressure": noPressure, "io.pressure": noPressure, "memory.pressure": noPressure,
	})

	for c := range strings.FieldsSeq(delegated) {
		maps.Copy(files, r.controlled(c, dir))
	}

	return files
}

// controlled returns a controller's files of a new group.
func (r groupRules) controlled(controller, dir string) map[string]string {
	switch controller {
	case "cpu":
		return r.cpu().newCPU()
	case "cpuset":
		return r.cpuset().newCPUSet(dir)
	case "memory":
		return r.memory().newMemory()
	case "io", "blkio":
		return r.disks().newDisks()
	}

	return nil
}

// makeRoots creates the files of the hierarchy roots that the rules read.
func (r groupRules) makeRoots() error {
	for controller, root := range r.roots() {
		files := map[string]string{fileProcs: ""}
		if controller == "cpuset" || !r.separate() || !r.V1 {
			maps.Copy(files, r.cpuset().rootCPUSet())
		}
		if r.V1 && (controller == "blkio" || !r.separate()) {
			maps.Copy(files, r.disks().newDisks())
		}

		if !r.V1 {
			files[fileControllers] = strings.Join(knownControllers(), " ") + "\n"
			files[fileSubtree] = "\n"
		}

		maps.DeleteFunc(files, func(name, _ string) bool { return exists(filepath.Join(root, name)) })
		if err := writeAll(root, files); err != nil {
			return err
		}
	}

	return nil
}

func writeAll(dir string, files map[string]string) error {
	for name, content := range files {
		if err := writeFile(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}

	return nil
}

// delegate implements cgroup_subtree_control_write in kernel/cgroup/cgroup.c: groups below get the files of enabled
// controllers and lose those of disabled ones.
func (r groupRules) delegate(dir, value string) error {
	before := strings.Fields(text(dir, fileSubtree))
	after, err := parseSubtree(value, before)
	if err != nil {
		return err
	}

	names, err := subgroups(dir)
	if err != nil {
		return err
	}

	// Repeating a value changes nothing, even where it could not be enabled now.
	if slices.Equal(before, after) {
		return nil
	}

	if err := r.vetSubtree(dir, names, before, after); err != nil {
		return err
	}

	if err := set(dir, fileSubtree, strings.Join(after, " ")); err != nil {
		return err
	}

	for _, name := range names {
		if err := r.controllers(filepath.Join(dir, name), before, after); err != nil {
			return err
		}
	}

	return nil
}

// parseSubtree returns the enabled controllers after words such as +cpu and -memory.
func parseSubtree(value string, before []string) ([]string, error) {
	wanted := map[string]bool{}
	for _, c := range before {
		wanted[c] = true
	}

	for token := range strings.FieldsSeq(value) {
		name := strings.TrimLeft(token, "+-")
		if len(name) != len(token)-1 || !slices.Contains(knownControllers(), name) {
			return nil, syscall.EINVAL
		}

		wanted[name] = token[0] == '+'
	}

	return slices.DeleteFunc(knownControllers(), func(c string) bool { return !wanted[c] }), nil
}

// vetSubtree returns an error for enabling unavailable controllers, for disabling those that a group below delegates,
// and for enabling any in groups with processes (cgroup_vet_subtree_control_enable).
func (r groupRules) vetSubtree(dir string, names, before, after []string) error {
	available := strings.Fields(text(dir, fileControllers))
	for _, c := range knownControllers() {
		wasEnabled := slices.Contains(before, c)
		isEnabled := slices.Contains(after, c)
		if isEnabled && !wasEnabled && !slices.Contains(available, c) {
			return syscall.ENOENT
		}

		for _, name := range names {
			if wasEnabled && !isEnabled && slices.Contains(strings.Fields(text(filepath.Join(dir, name), fileSubtree)), c) {
				return syscall.EBUSY
			}
		}

		if isEnabled && !wasEnabled && !empty(dir, fileProcs) && !r.mayMix(dir, after) {
			return syscall.EBUSY
		}
	}

	return nil
}

// mayMix reports whether a group that delegates these controllers may contain processes: the controllers must be
// threaded, and no group below may have processes (cgroup_can_be_thread_root).
func (r groupRules) mayMix(dir string, passed []string) bool {
	if r.isRoot(dir) || len(passed) == 0 {
		return true
	}

	if slices.Contains(passed, "memory") || slices.Contains(passed, "io") {
		return false
	}

	names, err := subgroups(dir)
	return err == nil && !slices.ContainsFunc(names, func(n string) bool { return r.populated(filepath.Join(dir, n)) })
}

// controllers replaces the files of a group after a change of its controllers.
func (r groupRules) controllers(dir string, before, after []string) error {
	for _, c := range knownControllers() {
		wasEnabled := slices.Contains(before, c)
		isEnabled := slices.Contains(after, c)
		if wasEnabled == isEnabled {
			continue
		}

		if isEnabled {
			if err := writeAll(dir, r.controlled(c, dir)); err != nil {
				return err
			}

			continue
		}

		for name := range r.controlled(c, dir) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}

	return set(dir, fileControllers, strings.Join(after, " "))
}
