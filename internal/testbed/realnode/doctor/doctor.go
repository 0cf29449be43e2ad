// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor checks whether this machine can run real nodes and what to install if not. It tests features by using
// them.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"crane.io/crane/internal/testbed/realnode/hostcgroup"
)

// Finding is the result of one check.
type Finding struct {
	// Name is the name of the requirement.
	Name string
	// Problem is empty if the requirement is met.
	Problem string
	// Remedy describes how to meet the requirement.
	Remedy string
	// Detail describes what was found.
	Detail string
}

// Packages of Debian and Ubuntu with the required programs.
const (
	namespacePackages = "containerd runc containernetworking-plugins iproute2"
	machinePackages   = "qemu-system-x86 e2fsprogs"
	install           = "apt-get install --no-install-recommends "
)

// Programs returns the programs that every node needs.
func Programs() []string {
	return []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "mount", "umount"}
}

// Plugins returns the CNI plugins at Debian's paths.
func Plugins() []string {
	return []string{"/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/lib/cni/loopback"}
}

// controllers returns the cgroup v1 controllers that a kubelet requires.
func controllers() []string {
	return []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "blkio"}
}

// CheckNamespaces checks the requirements of every session and of namespace nodes.
func CheckNamespaces(ctx context.Context) []Finding {
	if runtime.GOOS != "linux" {
		return []Finding{{Name: "Linux", Problem: "this is " + runtime.GOOS, Remedy: "use a Linux machine"}}
	}

	findings := []Finding{root()}
	for _, p := range append([]string{"ip"}, Programs()...) {
		findings = append(findings, program(p, namespacePackages))
	}

	for _, p := range Plugins() {
		findings = append(findings, file(p, namespacePackages))
	}

	findings = append(findings, cgroups())
	if Problems(findings) == nil {
		findings = append(findings, namespaces(ctx))
	}

	return findings
}

// CheckMachine checks the additional requirements of virtual machines.
func CheckMachine(context.Context) []Finding {
	findings := []Finding{
		program("qemu-system-x86_64", machinePackages), program("mke2fs", machinePackages), program("ldd", "libc-bin"),
		file("/dev/net/tun", "a kernel with TUN/TAP (CONFIG_TUN)"),
	}

	if runtime.GOARCH != "amd64" {
		findings = append(findings, Finding{
			Name: "amd64", Problem: "virtual machines are of amd64 only, this is " + runtime.GOARCH, Remedy: "use cgroup version 2 of the host",
		})
	}

	return findings
}

// Problems returns an error that lists every problem, nil without any.
func Problems(findings []Finding) error {
	var errs []error
	for _, f := range findings {
		if f.Problem != "" {
			errs = append(errs, fmt.Errorf("%s: %s (%s)", f.Name, f.Problem, f.Remedy))
		}
	}

	return errors.Join(errs...)
}

// Print writes one line for each finding.
func Print(out io.Writer, findings []Finding) {
	for _, f := range findings {
		if f.Problem == "" {
			fmt.Fprintf(out, "  ok       %-26s %s\n", f.Name, f.Detail)
			continue
		}

		fmt.Fprintf(out, "  missing  %-26s %s\n           %-26s -> %s\n", f.Name, f.Problem, "", f.Remedy)
	}
}

func root() Finding {
	f := Finding{Name: "root", Detail: "user 0", Remedy: "run as root, for example with sudo"}
	if uid := os.Geteuid(); uid != 0 {
		f.Problem = fmt.Sprintf("this is user %d; namespaces, mounts and cgroups need root", uid)
	}

	return f
}

func program(name, packages string) Finding {
	path, err := exec.LookPath(name)
	f := Finding{Name: name, Detail: path, Remedy: install + packages}
	if err != nil {
		f.Problem = "not in PATH"
	}

	return f
}

func file(path, packages string) Finding {
	f := Finding{Name: filepath.Base(path), Detail: path, Remedy: install + packages}
	if !strings.HasPrefix(path, "/usr") {
		f.Remedy = packages
	}
	if _, err := os.Stat(path); err != nil {
		f.Problem = path + " does not exist"
	}

	return f
}

// cgroups creates a cgroup and removes it.
func cgroups() Finding {
	f := Finding{Name: "cgroups", Remedy: "mount them writable; in a container, run it privileged"}
	host, err := hostcgroup.Detect()
	if err != nil {
		f.Problem = err.Error()
		return f
	}

	switch missing := host.Missing(controllers()...); {
	case len(host.V1) == 0 && host.Unified == nil:
		f.Problem = "none are mounted"
	case len(host.V1) > 0 && len(missing) > 0:
		f.Problem = "no v1 controller " + strings.Join(missing, ", ")

	// Only creating a group shows whether the hierarchies are writable.
	default:
		group, err := host.Make(fmt.Sprintf("crane-nodes-probe-%d", os.Getpid()))
		if err == nil {
			err = group.Remove(0)
		}
		if err != nil {
			f.Problem = err.Error()
		}
	}

	f.Detail = "version 2"
	if len(host.V1) > 0 {
		f.Detail = "version 1: " + strings.Join(host.Names(), " ")
	}

	return f
}

// namespaces creates all namespaces of a session with a bridge in them.
func namespaces(ctx context.Context) Finding {
	f := Finding{Name: "namespaces and bridges", Detail: "can be created", Remedy: "run as real root, in a container privileged; the kernel needs bridge, veth and overlay"}
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader("link add probe0 type bridge\nlink add probe1 type veth peer name probe2\n")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP,
	}

	if out, err := cmd.CombinedOutput(); err != nil {
		f.Problem = fmt.Sprintf("%v %s", err, strings.TrimSpace(string(out)))
	}
	if content, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(content), "\toverlay\n") {
		f.Problem += " no overlay file system in /proc/filesystems (modprobe overlay)"
	}

	return f
}
