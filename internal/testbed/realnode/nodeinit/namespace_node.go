// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeinit is the first process of a real node in namespaces or in a virtual machine: it mounts the node's file
// systems, writes its files, configures its network, starts the container runtime and the kubelet, and reaps orphans.
// Its only input is nodespec.Node.
package nodeinit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"crane.io/crane/internal/testbed/realnode/nodespec"
)

// InsideArg is the argument of the first process of a namespace node after it has entered its cgroup namespace.
const InsideArg = "inside"

// leaf is the cgroup of the node's own processes on cgroup v2, where a group with controllers for its children must not
// contain processes. The kubelet creates its groups beside it.
const leaf = "node.slice"

// RunInit waits until its parent has moved it to its cgroups, makes them the root of a cgroup namespace and executes
// RunInside. The parent has created all other namespaces. It returns only on error.
func RunInit() error {
	// The first byte signals that the cgroups are set; RunInside reads the rest of the stream.
	var ready [1]byte
	if _, err := io.ReadFull(os.NewFile(nodespec.ConfigFD, "config"), ready[:]); err != nil {
		return fmt.Errorf("waiting for the cgroups: %w", err)
	}

	// Namespaces belong to threads; exec keeps those of the calling thread.
	runtime.LockOSThread()

	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("creating a cgroup namespace: %w", err)
	}

	return syscall.Exec("/proc/self/exe", []string{os.Args[0], InsideArg}, os.Environ())
}

// RunInside sets up a namespace node and runs it until it ends.
func RunInside() error {
	n := &node{reports: os.NewFile(nodespec.ReportFD, "reports"), begin: time.Now()}
	if err := json.NewDecoder(os.NewFile(nodespec.ConfigFD, "config")).Decode(&n.spec); err != nil {
		return n.fail("config", err)
	}

	for i := range n.spec.Steps {
		fd := nodespec.LogFD + i
		unix.CloseOnExec(fd)
		n.logs = append(n.logs, os.NewFile(uintptr(fd), n.spec.Steps[i].Name))
	}

	unix.CloseOnExec(nodespec.ConfigFD)
	unix.CloseOnExec(nodespec.ReportFD)

	if err := n.enterRoot(); err != nil {
		return n.fail(nodespec.Mounted, err)
	}

	return n.run()
}

// enterRoot creates and enters a root file system in memory that contains only the host's programs and libraries,
// read-only. All writes in the node are discarded with its last process.
func (n *node) enterRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}

	newRoot := n.spec.Root
	options := fmt.Sprintf("mode=0755,size=%d", n.spec.DiskBytes)
	if err := unix.Mount("node", newRoot, "tmpfs", 0, options); err != nil {
		return fmt.Errorf("mounting root: %w", err)
	}

	// Programs and libraries of the host; everything else stays outside.
	binds := map[string]string{}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/etc/alternatives", "/etc/ld.so.cache"} {
		binds[dir] = dir
	}

	maps.Copy(binds, n.spec.Binds)
	for to, from := range binds {
		if err := bindReadOnly(from, newRoot+to); err != nil {
			return err
		}
	}

	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "etc", "var/lib", "var/log", "var/tmp", "root", ".old"} {
		if err := os.MkdirAll(filepath.Join(newRoot, dir), 0o755); err != nil {
			return fmt.Errorf("creating root: %w", err)
		}
	}

	if err := os.Symlink("/run", filepath.Join(newRoot, "var/run")); err != nil {
		return fmt.Errorf("creating root: %w", err)
	}

	if err := unix.PivotRoot(newRoot, newRoot+"/.old"); err != nil {
		return fmt.Errorf("entering root: %w", err)
	}

	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("entering root: %w", err)
	}

	if err := n.mountSystem(); err != nil {
		return err
	}

	if err := unix.Unmount("/.old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the host's root: %w", err)
	}

	return os.Remove("/.old")
}

// bindReadOnly mounts from at to, read-only. Symbolic links are recreated; missing files are skipped.
func bindReadOnly(from, to string) error {
	info, err := os.Lstat(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mounting %s in the node: %w", from, err)
	}

	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("mounting %s in the node: %w", from, err)
	}

	// The target of a mount must exist and be of the same kind.
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return fmt.Errorf("mounting %s in the node: %w", from, err)
		}

		return os.Symlink(target, to)

	case info.IsDir():
		err = os.MkdirAll(to, 0o755)
	default:
		err = os.WriteFile(to, nil, 0o600)
	}

	if err != nil {
		return fmt.Errorf("mounting %s in the node: %w", from, err)
	}

	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s in the node: %w", from, err)
	}

	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, to, unix.AT_RECURSIVE, attr); err != nil {
		return fmt.Errorf("making %s read-only: %w", to, err)
	}

	return nil
}

// mountSystem mounts the kernel's file systems for this node's namespaces.
func (n *node) mountSystem() error {
	for _, m := range []struct{ kind, to, options string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"tmpfs", "/dev", "mode=0755,size=64k"},
		{"tmpfs", "/run", "mode=0755"},
		{"tmpfs", "/sys/fs/cgroup", "mode=0755"},
	} {
		if err := unix.Mount(m.kind, m.to, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.kind, m.to, err)
		}
	}

	if err := errors.Join(makeDevices(), n.mountCgroups(), maskSysctls()); err != nil {
		return err
	}

	return fakeNUMA(n.spec.NUMA)
}

// mountCgroups mounts the host's hierarchies; the node's cgroup is their root in this cgroup namespace.
func (n *node) mountCgroups() error {
	const base = "/sys/fs/cgroup"
	if len(n.spec.Hierarchies) == 0 {
		if err := unix.Unmount(base, 0); err != nil {
			return fmt.Errorf("mounting cgroups: %w", err)
		}

		return mountUnified(base)
	}

	for _, h := range n.spec.Hierarchies {
		dir := filepath.Join(base, strings.TrimPrefix(h, "name="))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("mounting cgroup hierarchy %s: %w", h, err)
		}

		options := h
		if strings.HasPrefix(h, "name=") {
			options = "none," + h // without controllers
		}

		if err := unix.Mount("cgroup", dir, "cgroup", 0, options); err != nil {
			return fmt.Errorf("mounting cgroup hierarchy %s: %w", h, err)
		}

		if names := strings.Split(h, ","); len(names) > 1 {
			for _, name := range names {
				if err := os.Symlink(h, filepath.Join(base, name)); err != nil {
					return fmt.Errorf("mounting cgroup hierarchy %s: %w", h, err)
				}
			}
		}
	}

	if !n.spec.Unified {
		return nil
	}

	dir := filepath.Join(base, "unified")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("mounting cgroup v2: %w", err)
	}

	if err := unix.Mount("cgroup2", dir, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mounting cgroup v2: %w", err)
	}

	return nil
}

// mountUnified mounts cgroup v2 and moves this process to the leaf group.
func mountUnified(base string) error {
	if err := unix.Mount("cgroup2", base, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mounting cgroup v2: %w", err)
	}

	group := filepath.Join(base, leaf)
	if err := os.Mkdir(group, 0o755); err != nil {
		return fmt.Errorf("creating the node's own cgroup: %w", err)
	}

	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("entering the node's own cgroup: %w", err)
	}

	return nil
}

// makeDevices creates only the devices that every container runtime expects, because privileged pods have access to
// them.
func makeDevices() error {
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{
		{"null", 1, 3},
		{"zero", 1, 5},
		{"full", 1, 7},
		{"random", 1, 8},
		{"urandom", 1, 9},
		{"kmsg", 1, 11},
		{"tty", 5, 0},
	} {
		path := "/dev/" + d.name
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("creating %s: %w", path, err)
		}

		if err := os.Chmod(path, 0o666); err != nil {
			return fmt.Errorf("creating %s: %w", path, err)
		}
	}

	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
		"ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return fmt.Errorf("creating /dev/%s: %w", name, err)
		}
	}

	// Terminals, shared memory and message queues belong to the namespaces of the node.
	for _, m := range []struct{ kind, to, options string }{
		{"devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=0620"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"mqueue", "/dev/mqueue", ""},
	} {
		if err := os.Mkdir(m.to, 0o755); err != nil {
			return fmt.Errorf("creating %s: %w", m.to, err)
		}

		if err := unix.Mount(m.kind, m.to, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}

	return nil
}

// maskSysctls mounts files over the sysctls that the kubelet sets and that apply to the whole machine. They contain the
// values that the kubelet expects, and discard its writes.
func maskSysctls() error {
	const dir = "/run/sysctl"
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("masking sysctls: %w", err)
	}

	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return fmt.Errorf("masking sysctl %s: %w", name, err)
		}

		err := unix.Mount(file, "/proc/sys/"+name, "", unix.MS_BIND, "")
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("masking sysctl %s: %w", name, err)
		}
	}

	return nil
}

// sorted returns the keys of files in an order with parents first.
func sorted(files map[string]nodespec.File) []string {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}

	slices.Sort(names)
	return names
}
