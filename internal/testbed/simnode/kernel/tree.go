// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Tree is a simulated cgroup hierarchy in a directory: writes that the kernel rejects return the kernel's error, and
// files then contain what the kernel makes of a value. It implements the settings of cpu, cpuset and memory. Each group
// is a directory and all state is in its files, so that readers need no special support. Its methods are safe for
// concurrent use; concurrent file reads may see partial writes.
//
// The rules are those of Linux 6.x; each names the kernel function that implements it. The v1 rules for cpu and cpuset
// were compared with Linux 6.18.
type Tree struct {
	// Dir is the root of the hierarchy: HOST/sys/fs/cgroup on v2. On v1 it is the root of cpu, such as
	// HOST/sys/fs/cgroup/cpu,cpuacct, with those of cpuset and memory beside it; if its name does not start with cpu,
	// all controllers share one hierarchy.
	Dir string
	// V1 selects the files and rules of version 1.
	V1 bool
	// CPUs and Mems are the machine's CPUs and memory nodes as lists; empty means 0-3 and 0.
	CPUs, Mems string
	// Disk is the disk throughput in bytes per second; 0 means unlimited.
	Disk float64

	mu        sync.Mutex
	transfers bool // a load has used the disk
}

// Write writes a value to a file of a group, given by its absolute path.
func (t *Tree) Write(file, value string) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.hierarchy().groups().write(file, value)
}

func (r groupRules) write(file, value string) error {
	dir, name := filepath.Split(file)
	dir = filepath.Clean(dir)

	if !exists(file) {
		return &os.PathError{Op: "open", Path: file, Err: syscall.ENOENT}
	}

	if err := r.accept(dir, name, strings.TrimSpace(value)); err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}

	return nil
}

// accept applies a value or returns the kernel's error.
func (r groupRules) accept(dir, name, value string) error {
	controller, _, _ := strings.Cut(name, ".")
	switch {
	case controller == "cpu":
		return r.cpu().setCPU(dir, name, value)
	case controller == "cpuset":
		return r.cpuset().setCPUSet(dir, name, value)
	case controller == "memory":
		return r.memory().setMemory(dir, name, value)
	case name == fileProcs:
		return r.attach(dir, value)
	case name == fileSubtree:
		return r.delegate(dir, value)
	}

	return errReadOnly
}

const (
	fileProcs = "cgroup.procs"
	// errReadOnly is the error of files without a write handler (cgroup_file_write in kernel/cgroup/cgroup.c).
	errReadOnly = syscall.EINVAL
)

// Remove removes a group.
func (t *Tree) Remove(group string) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	// cgroup_destroy_locked in kernel/cgroup/cgroup.c: a group with processes or with groups below it is busy.
	for _, root := range t.hierarchy().roots() {
		dir := filepath.Join(root, group)
		if !exists(dir) {
			return &os.PathError{Op: "rmdir", Path: dir, Err: syscall.ENOENT}
		}

		below, err := subgroups(dir)
		if err != nil {
			return err
		}

		if len(below) > 0 || t.hierarchy().populated(dir) {
			return &os.PathError{Op: "rmdir", Path: dir, Err: syscall.EBUSY}
		}
	}

	for _, root := range t.hierarchy().roots() {
		if err := os.RemoveAll(filepath.Join(root, group)); err != nil {
			return fmt.Errorf("removing a group: %w", err)
		}
	}

	return nil
}

// Attach moves a process to a group.
func (t *Tree) Attach(group string, pid int) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, root := range t.hierarchy().roots() {
		if err := t.hierarchy().groups().write(filepath.Join(root, group, fileProcs), strconv.Itoa(pid)); err != nil {
			return err
		}
	}

	return nil
}

// Detach ends all processes of a group.
func (t *Tree) Detach(group string) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, root := range t.hierarchy().roots() {
		if err := writeFile(filepath.Join(root, group, fileProcs), ""); err != nil {
			return err
		}
	}

	return nil
}

// Tear writes an incomplete last line to a file, as concurrent readers may see it.
func (t *Tree) Tear(group, file string) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	controller, _, _ := strings.Cut(file, ".")
	path := filepath.Join(t.hierarchy().root(controller), group, file)
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("tearing a file: %w", err)
	}

	return writeFile(path, string(content[:len(content)/2]))
}

func (r groupRules) attach(dir, value string) error {
	pid, err := strconv.Atoi(value)
	if err != nil || pid < 0 {
		return syscall.EINVAL // __cgroup_procs_write in kernel/cgroup/cgroup.c
	}

	if !r.V1 && !r.mayMix(dir, strings.Fields(text(dir, fileSubtree))) {
		return syscall.EBUSY // cgroup_migrate_vet_dst in kernel/cgroup/cgroup.c: it delegates controllers
	}

	if r.V1 && r.has(dir, "cpuset") {
		// cpuset_can_attach in kernel/cgroup/cpuset.c: the group must have CPUs and memory.
		if empty(dir, "cpuset.cpus") || empty(dir, "cpuset.mems") {
			return syscall.ENOSPC
		}
	}

	content, err := os.ReadFile(filepath.Join(dir, fileProcs))
	if err != nil {
		return fmt.Errorf("attaching a process: %w", err)
	}

	return writeFile(filepath.Join(dir, fileProcs), string(content)+value+"\n")
}

// hierarchy is where the groups of a Tree are. Each controller's rules are methods of a type of its own.
type hierarchy struct {
	Dir        string
	V1         bool
	CPUs, Mems string
}

func (t *Tree) hierarchy() hierarchy {
	return hierarchy{
		Dir:  t.Dir,
		V1:   t.V1,
		CPUs: t.CPUs,
		Mems: t.Mems,
	}
}

func (h hierarchy) cpu() cpuRules        { return cpuRules{h} }
func (h hierarchy) cpuset() cpusetRules  { return cpusetRules{h} }
func (h hierarchy) memory() memoryRules  { return memoryRules{h} }
func (h hierarchy) disks() diskRules     { return diskRules{h} }
func (h hierarchy) groups() groupRules   { return groupRules{h} }
func (h hierarchy) scheduler() scheduler { return scheduler{h} }

// roots returns the hierarchies by one controller of each.
func (h hierarchy) roots() map[string]string {
	out := map[string]string{"cpu": filepath.Clean(h.Dir)}
	if h.V1 && h.separate() {
		out["cpuset"] = h.root("cpuset")
		out["memory"] = h.root("memory")
		out["blkio"] = h.root("blkio")
	}

	return out
}

// separate reports whether the v1 controllers are in separate hierarchies.
func (h hierarchy) separate() bool { return strings.HasPrefix(filepath.Base(h.Dir), "cpu") }

func (h hierarchy) root(controller string) string {
	dir := filepath.Clean(h.Dir)
	if h.V1 && h.separate() && (controller == "cpuset" || controller == "memory" || controller == "blkio") {
		return filepath.Join(filepath.Dir(dir), controller)
	}

	return dir
}

// has reports whether a group's directory is in a controller's hierarchy.
func (h hierarchy) has(dir, controller string) bool {
	root := h.root(controller)
	return dir == root || strings.HasPrefix(dir, root+"/")
}

// isRoot reports whether a directory is the root of its hierarchy.
func (h hierarchy) isRoot(dir string) bool {
	for _, root := range h.roots() {
		if dir == root {
			return true
		}
	}

	return false
}

// populated reports whether a group or one below it has processes.
func (h hierarchy) populated(dir string) bool {
	if !empty(dir, fileProcs) {
		return true
	}

	below, err := subgroups(dir)
	if err != nil {
		return false
	}

	for _, name := range below {
		if h.populated(filepath.Join(dir, name)) {
			return true
		}
	}

	return false
}

func subgroups(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing groups: %w", err)
	}

	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}

	return out, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// text returns the trimmed content of a file, empty if it does not exist.
func text(dir, file string) string {
	content, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}

	return strings.TrimSpace(string(content))
}

func empty(dir, file string) bool { return text(dir, file) == "" }

// number reads a file with a number; the previous value is kept if the file does not exist. max means none.
func number(dir, file string, target *int64) error {
	content, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}

	value := strings.TrimSpace(string(content))
	if value == "max" {
		*target = none
		return nil
	}

	if *target, err = strconv.ParseInt(value, 10, 64); err != nil {
		return fmt.Errorf("parsing %s: %w", file, err)
	}

	return nil
}

// none means no limit.
const none = -1

func set(dir, file, value string) error { return writeFile(filepath.Join(dir, file), value+"\n") }

func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write simulated file: %w", err)
	}

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("write simulated file: %w", err)
	}

	return nil
}
