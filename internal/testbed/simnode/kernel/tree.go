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

// Tree is a hierarchy of cgroups below a directory that can be written to as a kernel's can: what the kernel refuses is refused, with the
// kernel's error, and what it makes of a value is what the file then holds. It has the settings of cpu, cpuset and memory; each group is
// a directory and all state is in its files, so that readers need know nothing of it. Its methods are safe for concurrent use; who reads a
// file while it is written may see a part of it.
//
// Rules are those of Linux 6.x; each stands where it is applied with the function that has it. Those of v1 for cpu and cpuset were
// compared with what Linux 6.18 says.
type Tree struct {
	// Dir is the root of the hierarchy: HOST/sys/fs/cgroup on v2. On v1 it is that of cpu, such as HOST/sys/fs/cgroup/cpu,cpuacct, and
	// those of cpuset and memory lie beside it; where its name does not begin with cpu they are all in one.
	Dir string
	// V1 has the files and the rules of version 1.
	V1 bool
	// CPUs and Mems are what the machine has, as lists: 0-3 and 0 where they are empty.
	CPUs, Mems string
	// Disk is how many bytes its disk transfers in a second; 0 for as many as anybody wants.
	Disk float64

	mu        sync.Mutex
	transfers bool // somebody has transferred something
}

// Write writes a value to a file of a group, given by its whole path.
func (t *Tree) Write(file, value string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.write(file, value)
}

func (t *Tree) write(file, value string) error {
	dir, name := filepath.Split(file)
	dir = filepath.Clean(dir)
	if !exists(file) {
		return &os.PathError{Op: "open", Path: file, Err: syscall.ENOENT}
	}
	if err := t.accept(dir, name, strings.TrimSpace(value)); err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// accept takes a value or says what the kernel says against it.
func (t *Tree) accept(dir, name, value string) error {
	controller, _, _ := strings.Cut(name, ".")
	switch {
	case controller == "cpu":
		return t.setCPU(dir, name, value)
	case controller == "cpuset":
		return t.setCPUSet(dir, name, value)
	case controller == "memory":
		return t.setMemory(dir, name, value)
	case name == fileProcs:
		return t.attach(dir, value)
	case name == fileSubtree:
		return t.passOn(dir, value)
	}
	return errReadOnly
}

const (
	fileProcs = "cgroup.procs"
	// errReadOnly is what a file says that has nobody to take a write (cgroup_file_write in kernel/cgroup/cgroup.c).
	errReadOnly = syscall.EINVAL
)

// Remove removes a group.
func (t *Tree) Remove(group string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	// cgroup_destroy_locked in kernel/cgroup/cgroup.c: a group with processes or with groups below it is busy.
	for _, root := range t.roots() {
		dir := filepath.Join(root, group)
		if !exists(dir) {
			return &os.PathError{Op: "rmdir", Path: dir, Err: syscall.ENOENT}
		}
		below, err := subgroups(dir)
		if err != nil {
			return err
		}
		if len(below) > 0 || t.populated(dir) {
			return &os.PathError{Op: "rmdir", Path: dir, Err: syscall.EBUSY}
		}
	}
	for _, root := range t.roots() {
		if err := os.RemoveAll(filepath.Join(root, group)); err != nil {
			return fmt.Errorf("rmdir: %w", err)
		}
	}
	return nil
}

// Attach puts a process into a group.
func (t *Tree) Attach(group string, pid int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, root := range t.roots() {
		if err := t.write(filepath.Join(root, group, fileProcs), strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// Detach ends all processes of a group.
func (t *Tree) Detach(group string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, root := range t.roots() {
		if err := writeFile(filepath.Join(root, group, fileProcs), ""); err != nil {
			return err
		}
	}
	return nil
}

// Tear leaves half a line at the end of a file, as a reader sees one that is being written.
func (t *Tree) Tear(group, file string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	controller, _, _ := strings.Cut(file, ".")
	path := filepath.Join(t.root(controller), group, file)
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("tear: %w", err)
	}
	return writeFile(path, string(content[:len(content)/2]))
}

func (t *Tree) attach(dir, value string) error {
	pid, err := strconv.Atoi(value)
	if err != nil || pid < 0 {
		return syscall.EINVAL // __cgroup_procs_write in kernel/cgroup/cgroup.c
	}
	if !t.V1 && !t.mayMix(dir, strings.Fields(text(dir, fileSubtree))) {
		return syscall.EBUSY // cgroup_migrate_vet_dst in kernel/cgroup/cgroup.c: it passes controllers on
	}
	if t.V1 && t.has(dir, "cpuset") {
		// cpuset_can_attach in kernel/cgroup/cpuset.c: not where there is no CPU or no memory.
		if empty(dir, "cpuset.cpus") || empty(dir, "cpuset.mems") {
			return syscall.ENOSPC
		}
	}
	content, err := os.ReadFile(filepath.Join(dir, fileProcs))
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	return writeFile(filepath.Join(dir, fileProcs), string(content)+value+"\n")
}

// roots are the hierarchies by a controller that is in each.
func (t *Tree) roots() map[string]string {
	out := map[string]string{"cpu": filepath.Clean(t.Dir)}
	if t.V1 && t.apart() {
		out["cpuset"], out["memory"], out["blkio"] = t.root("cpuset"), t.root("memory"), t.root("blkio")
	}
	return out
}

// apart tells whether v1's controllers are mounted apart.
func (t *Tree) apart() bool { return strings.HasPrefix(filepath.Base(t.Dir), "cpu") }

func (t *Tree) root(controller string) string {
	dir := filepath.Clean(t.Dir)
	if t.V1 && t.apart() && (controller == "cpuset" || controller == "memory" || controller == "blkio") {
		return filepath.Join(filepath.Dir(dir), controller)
	}
	return dir
}

// has tells whether a group's directory is in a controller's hierarchy.
func (t *Tree) has(dir, controller string) bool {
	root := t.root(controller)
	return dir == root || strings.HasPrefix(dir, root+"/")
}

// isRoot tells whether a directory is the root of its hierarchy.
func (t *Tree) isRoot(dir string) bool {
	for _, root := range t.roots() {
		if dir == root {
			return true
		}
	}
	return false
}

// populated tells whether a group or one below it has processes.
func (t *Tree) populated(dir string) bool {
	if !empty(dir, fileProcs) {
		return true
	}
	below, err := subgroups(dir)
	if err != nil {
		return false
	}
	for _, name := range below {
		if t.populated(filepath.Join(dir, name)) {
			return true
		}
	}
	return false
}

func subgroups(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
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

// text is the content of a file without blanks around it; empty where there is none.
func text(dir, file string) string {
	content, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

func empty(dir, file string) bool { return text(dir, file) == "" }

// number reads a file with a number into one that is kept where there is no such file. max stands for none.
func number(dir, file string, into *int64) error {
	content, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	value := strings.TrimSpace(string(content))
	if value == "max" {
		*into = none
		return nil
	}
	if *into, err = strconv.ParseInt(value, 10, 64); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// none is no limit.
const none = -1

func set(dir, file, value string) error { return writeFile(filepath.Join(dir, file), value+"\n") }
