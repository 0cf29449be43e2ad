// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

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

// Hint is what is known about the group of pods beside the tree.
type Hint struct {
	// Pods is the group itself, such as k8s.slice/k8s-kubepods.slice; empty if it is not known.
	Pods string
	// Root and Driver are cgroupRoot and cgroupDriver of the kubelet's configuration; empty if they are not set.
	Root string
	// Driver is cgroupfs or systemd.
	Driver Driver
}

// podRoots returns the groups in which pods may be: first below the kubelet's root with its driver, then with the other one, since a runtime
// may choose it, then those by default and of a kubelet in a container, such as kind's.
func (h Hint) podRoots() []string {
	if h.Pods != "" {
		return []string{strings.Trim(h.Pods, "/")}
	}

	var out []string
	for _, root := range []string{strings.Trim(h.Root, "/"), "", "kubelet"} {
		slice := systemdPath(root)
		plain := path.Join(root, "kubepods")
		if h.Driver == CgroupFS {
			out = append(out, plain, slice)
		} else {
			out = append(out, slice, plain)
		}
	}

	return out
}

// systemdPath returns the path of the slice of pods below a root: a slice is in those that its name starts with.
func systemdPath(root string) string {
	var parts []string
	for part := range strings.SplitSeq(root, "/") {
		// The kubelet drops the suffix of each part and joins the names with dashes.
		if name := strings.TrimSuffix(part, ".slice"); name != "" {
			parts = append(parts, strings.Split(name, "-")...)
		}
	}

	parts = append(parts, "kubepods")
	out := ""
	for i := range parts {
		out = path.Join(out, strings.Join(parts[:i+1], "-")+".slice")
	}

	return out
}

// driverOf returns the driver of a group of pods by its name.
func driverOf(pods string) Driver {
	if strings.HasSuffix(pods, ".slice") {
		return Systemd
	}

	return CgroupFS
}

// Detect inspects the directories below root, not mounts, which a container or a recorded tree does not share with the host.
func Detect(root host.Root) (Layout, error) { return DetectWith(root, Hint{}) }

// DetectWith is Detect with what is known about the group of pods. Of several groups the one with pods is used: another kubelet or another
// driver may have left one without. If none of them exists, a group of that name is searched below others.
func DetectWith(root host.Root, hint Hint) (Layout, error) {
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

	l.findPods(hint)
	return l, nil
}

// maxRootDepth is the depth to which groups of pods are searched: a kubelet in a container has the root /docker/ID/kubelet.
const maxRootDepth = 4

// findPods sets the group of pods.
func (l *Layout) findPods(hint Hint) {
	var found []string
	for _, r := range hint.podRoots() {
		if pathExists(filepath.Join(l.cpu, r)) {
			found = append(found, r)
		}
	}

	if len(found) == 0 && hint.Pods == "" {
		found = l.searchPods("", maxRootDepth)
	}

	for _, r := range found {
		candidate := *l
		candidate.Pods = r
		candidate.Driver = driverOf(r)
		if l.Pods == "" {
			*l = candidate
		}

		if candidate.HasPods() {
			*l = candidate
			return
		}
	}
}

// searchPods returns the groups named like one of pods below a group. It does not search below slices and groups of containers.
func (l *Layout) searchPods(group string, depth int) (found []string) {
	entries, err := os.ReadDir(filepath.Join(l.cpu, group))
	if err != nil || depth == 0 {
		return nil
	}

	for _, e := range entries {
		name := e.Name()
		below := path.Join(group, name)
		switch {
		case !e.IsDir():
		case name == "kubepods" || name == "kubepods.slice" || strings.HasSuffix(name, "-kubepods.slice"):
			found = append(found, below)
		case strings.HasSuffix(name, ".scope"), strings.HasSuffix(name, ".service"), name == "system.slice", name == "user.slice":
		default:
			found = append(found, l.searchPods(below, depth-1)...)
		}
	}

	return found
}

// HasPods reports whether the group of pods has one.
func (l *Layout) HasPods() bool {
	if l.Pods == "" {
		return false
	}

	dirs := []string{l.Pods}
	for _, c := range listClassDirs(l.Pods, l.Driver) {
		dirs = append(dirs, path.Join(l.Pods, c.dir))
	}

	for _, dir := range dirs {
		entries, err := os.ReadDir(filepath.Join(l.cpu, dir))
		if err != nil {
			continue
		}

		for _, e := range entries {
			if e.IsDir() && parsePodUID([]byte(e.Name()), l.Driver) != nil {
				return true
			}
		}
	}

	return false
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
	return !errors.Is(err, host.ErrGone) && !host.IsUnsupported(err)
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
