// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostcgroup finds the mounted cgroup hierarchies of this host and creates and removes groups in them, below
// the cgroup of the calling process, so that the resources of nodes are accounted to it. It mounts nothing and changes
// only groups that it has created.
package hostcgroup

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Hierarchy is one mounted cgroup hierarchy.
type Hierarchy struct {
	// Name lists the controllers as in /proc/self/cgroup, or "name=systemd" and the like for a hierarchy without
	// controllers. It is empty for cgroup v2.
	Name string `json:"name"`
	// Own is the directory of this process's group.
	Own string `json:"own"`
	// Root is the directory where the hierarchy is mounted.
	Root string `json:"root"`
}

// Host describes the cgroup hierarchies of the host.
type Host struct {
	// V1 lists the hierarchies of cgroup v1, in the order of /proc/self/cgroup.
	V1 []Hierarchy
	// Unified is the hierarchy of cgroup v2, nil if not mounted.
	Unified *Hierarchy
}

// Detect reads the hierarchies of this process.
func Detect() (Host, error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Host{}, fmt.Errorf("finding cgroups: %w", err)
	}
	defer mounts.Close()

	membership, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return Host{}, fmt.Errorf("finding cgroups: %w", err)
	}
	defer membership.Close()

	return parse(mounts, membership)
}

// mount is a line of mountinfo about cgroups.
type mount struct{ root, point, options string }

// parse combines the mounts (proc(5), mountinfo) with the cgroups of the process (cgroups(7), /proc/PID/cgroup).
func parse(mountinfo, membership io.Reader) (Host, error) {
	v1, v2, err := parseMounts(mountinfo)
	if err != nil {
		return Host{}, err
	}

	var host Host
	lines := bufio.NewScanner(membership)
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), ":", 3)
		if len(fields) != 3 {
			return Host{}, fmt.Errorf("finding cgroups: %q is not a line of /proc/PID/cgroup", lines.Text())
		}

		name := fields[1]
		path := fields[2]
		if name == "" {
			if v2 != nil {
				host.Unified = &Hierarchy{Root: v2.point, Own: within(*v2, path)}
			}
			continue
		}

		i := slices.IndexFunc(v1, func(m mount) bool { return hasAll(m.options, name) })
		if i >= 0 {
			host.V1 = append(host.V1, Hierarchy{Name: name, Root: v1[i].point, Own: within(v1[i], path)})
		}
	}

	if err := lines.Err(); err != nil {
		return Host{}, fmt.Errorf("finding cgroups: %w", err)
	}

	slices.Reverse(host.V1) // the kernel lists the newest first
	return host, nil
}

func parseMounts(mountinfo io.Reader) (v1 []mount, v2 *mount, err error) {
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		dash := slices.Index(fields, "-")
		if dash < 6 || len(fields) < dash+4 {
			continue
		}

		m := mount{root: fields[3], point: fields[4], options: fields[dash+3]}
		switch fields[dash+1] {
		case "cgroup":
			v1 = append(v1, m)
		case "cgroup2":
			if v2 == nil {
				v2 = &m
			}
		}
	}

	if err := lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("finding cgroups: %w", err)
	}

	return v1, v2, nil
}

// hasAll reports whether the mount options contain all controllers of name.
func hasAll(options, name string) bool {
	all := strings.Split(options, ",")
	for part := range strings.SplitSeq(name, ",") {
		if !slices.Contains(all, part) {
			return false
		}
	}

	return true
}

// within returns the directory of path in a mount that may contain only a part of its hierarchy.
func within(m mount, path string) string {
	if m.root != "/" {
		path = strings.TrimPrefix(path, m.root)
	}

	return filepath.Join(m.point, path)
}

// Names returns the names of the v1 hierarchies.
func (h Host) Names() []string {
	names := make([]string, len(h.V1))
	for i, v := range h.V1 {
		names[i] = v.Name
	}

	return names
}

// Missing returns the controllers of want that no v1 hierarchy has.
func (h Host) Missing(want ...string) []string {
	var mounted []string
	for _, name := range h.Names() {
		mounted = append(mounted, strings.Split(name, ",")...)
	}

	return slices.DeleteFunc(want, func(c string) bool { return slices.Contains(mounted, c) })
}
