// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"crane.io/crane/internal/agent/host"
)

// Version is the cgroup version of a host.
type Version string

// Cgroup versions.
const (
	V1 Version = "v1"
	V2 Version = "v2"
	// Hybrid has controllers on v1 and beside them a v2 tree without CPU and memory, which has pressure files.
	Hybrid Version = "hybrid"
)

// Driver is the kubelet's cgroup driver, which determines group names.
type Driver string

// Cgroup drivers.
const (
	CgroupFS Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// ErrNoCgroups reports a host without mounted cgroups.
var ErrNoCgroups = errors.New("no cgroup hierarchy with the cpu controller is mounted")

const mountPoint = "sys/fs/cgroup"

// Layout describes where the cgroups of a host are.
type Layout struct {
	Version Version
	// Driver and Pods are empty on a host without a kubelet.
	Driver Driver
	// Pods is the group of all pods relative to the hierarchies, such as kubepods or kubepods.slice.
	Pods string
	// cpu, cpuacct, cpuset and memory are the mount points of the controllers, all the same on v2. unified is that of v2; empty without
	// it.
	cpu, cpuacct, cpuset, memory, unified string
}

// podRoots are the groups of pods by default and of a kubelet in a container, such as kind's.
var podRoots = []struct {
	path   string
	driver Driver
}{
	{"kubepods.slice", Systemd},
	{"kubepods", CgroupFS},
	{"kubelet.slice/kubelet-kubepods.slice", Systemd},
	{"kubelet/kubepods", CgroupFS},
}

// Detect inspects the directories below root, not mounts, which a container or a recorded tree does not share with the host.
func Detect(root host.Root) (Layout, error) {
	base := root.Path(mountPoint)
	var l Layout
	if pathExists(filepath.Join(base, "cgroup.controllers")) {
		l = Layout{
			Version: V2,
			cpu:     base,
			cpuacct: base,
			cpuset:  base,
			memory:  base,
			unified: base,
		}
	} else {
		l = Layout{
			Version: V1,
			cpu:     findV1Root(base, "cpu"),
			cpuacct: findV1Root(base, "cpuacct"),
			cpuset:  findV1Root(base, "cpuset"),
			memory:  findV1Root(base, "memory"),
		}

		// Only pressure files are in the v2 tree of a hybrid host.
		if unified := filepath.Join(base, "unified"); pathExists(filepath.Join(unified, "cgroup.controllers")) {
			l.Version = Hybrid
			l.unified = unified
		}

		if l.cpu == "" {
			return Layout{}, fmt.Errorf("%s: %w", base, ErrNoCgroups)
		}
	}

	for _, r := range podRoots {
		if pathExists(filepath.Join(l.cpu, r.path)) {
			l.Pods = r.path
			l.Driver = r.driver
			break
		}
	}

	return l, nil
}

// findV1Root returns the directory of a v1 controller, which may be mounted together with others (cpu,cpuacct).
func findV1Root(base, controller string) string {
	entries, err := os.ReadDir(base)
	if err != nil {
		return ""
	}

	for _, e := range entries {
		if slices.Contains(strings.Split(e.Name(), ","), controller) {
			return filepath.Join(base, e.Name())
		}
	}

	return ""
}

func pathExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hasController reports whether a controller is enabled: v2 may be mounted without any.
func (l Layout) hasController(controller string) bool {
	if l.Version != V2 {
		return controller != "memory" || l.memory != ""
	}

	content, err := os.ReadFile(filepath.Join(l.unified, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(content)), controller)
}

// MissingReason returns why a controller is not available; empty if it is.
func (l Layout) MissingReason(controller string) string {
	if l.hasController(controller) {
		return ""
	}

	return fmt.Sprintf("cgroup %s has no controller %s", l.Version, controller)
}

// HasFile reports whether the group of pods, or the root on a host without pods, has a file of a controller that the kernel supports: some
// files exist and cannot be read, such as pressure with psi=0. One without read permission counts as supported.
func (l Layout) HasFile(controller, file string) bool {
	dir := map[string]string{"cpu": l.cpu, "cpuacct": l.cpuacct, "cpuset": l.cpuset, "memory": l.memory, "unified": l.unified}[controller]
	if dir == "" {
		return false
	}

	_, err := (&host.Reader{}).ReadPath(filepath.Join(dir, l.Pods, file))
	return !errors.Is(err, host.ErrGone) && !errors.Is(err, syscall.EISDIR)
}

// Class is the QoS class of a pod, derived from its directory.
type Class string

// QoS classes.
const (
	Guaranteed Class = "Guaranteed"
	Burstable  Class = "Burstable"
	BestEffort Class = "BestEffort"
)

// listClassDirs returns the directories of Burstable and BestEffort pods below the group of all pods. Guaranteed pods are beside them.
func listClassDirs(pods string, d Driver) [2]struct {
	dir   string
	class Class
} {
	burstable, bestEffort := "burstable", "besteffort"
	if d == Systemd {
		// A slice's name includes those of its parents.
		prefix := strings.TrimSuffix(pods[strings.LastIndexByte(pods, '/')+1:], ".slice")
		burstable = prefix + "-burstable.slice"
		bestEffort = prefix + "-besteffort.slice"
	}

	return [2]struct {
		dir   string
		class Class
	}{{burstable, Burstable}, {bestEffort, BestEffort}}
}

// parsePodUID returns the UID in the name of a pod's directory: pod<uid>, or kubepods-burstable-pod<uid>.slice with underscores for
// dashes. It returns nil for other directories. The result shares name's bytes, whose underscores become dashes.
func parsePodUID(name []byte, d Driver) []byte {
	var uid []byte
	if d == Systemd {
		rest, ok := bytes.CutSuffix(name, []byte(".slice"))
		at := bytes.LastIndex(rest, []byte("-pod"))
		if !ok || at < 0 {
			return nil
		}

		uid = rest[at+len("-pod"):]
	} else {
		var ok bool
		if uid, ok = bytes.CutPrefix(name, []byte("pod")); !ok {
			return nil
		}
	}

	// A UUID, or the hash of a static pod's manifest.
	if len(uid) == 0 || len(uid) > 63 {
		return nil
	}

	for i, c := range uid {
		switch {
		case c == '_' && d == Systemd:
			uid[i] = '-'
		case '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '.':
		default:
			return nil
		}
	}

	return uid
}

// idLength is the length of the hexadecimal IDs of containerd, CRI-O and Docker.
const idLength = 64

// runtimes maps prefixes of container directories to runtimes.
var runtimes = map[string]string{"": "containerd", "cri-containerd": "containerd", "crio": "cri-o", "docker": "docker"}

// parseContainerID returns runtime and ID of a container's directory: <id>, crio-<id> or cri-containerd-<id>.scope. The ID is empty for
// others, such as crio-conmon-<id>.scope, CRI-O's own process.
func parseContainerID(name []byte, d Driver) (runtime string, id []byte) {
	if d == Systemd {
		var ok bool
		if name, ok = bytes.CutSuffix(name, []byte(".scope")); !ok {
			return "", nil
		}
	}

	if len(name) < idLength {
		return "", nil
	}

	prefix := name[:len(name)-idLength]
	id = name[len(name)-idLength:]
	for _, c := range id {
		if !strings.ContainsRune("0123456789abcdef", rune(c)) {
			return "", nil
		}
	}

	if len(prefix) > 0 {
		if prefix[len(prefix)-1] != '-' {
			return "", nil
		}

		prefix = prefix[:len(prefix)-1]
	} else if d == Systemd {
		return "", nil // Every scope has a prefix.
	}

	runtime, ok := runtimes[string(prefix)]
	if !ok {
		return "", nil
	}

	return runtime, id
}
