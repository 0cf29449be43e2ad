// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/numa"
)

// Kinds of journal units: the CPUs of a container and its memory nodes.
const (
	UnitKindCPUs = "cpuset"
	UnitKindMems = "memset"
)

// containerTarget is the cgroup of a container with its desired CPUs and memory nodes.
type containerTarget struct {
	id   string // container ID
	path string
	// owner names the pod and container in messages.
	owner string
	// cpus is empty if the container gets back the CPUs that it had before the agent changed them.
	cpus numa.CPUSet
	// mems lists NUMA node numbers as cpuset.mems does; empty restores them.
	mems string
	// rank orders the writes: containers that lose CPUs are written before those that get them exclusively.
	rank int
}

// cpusetWriter writes cpuset.cpus and cpuset.mems of containers. It is not safe for concurrent use.
type cpusetWriter struct {
	layout cgroup.Layout
	reader *host.Reader
	// journal is nil in a dry run, in which changes are only counted.
	journal *act.Journal
}

// UnsupportedReason returns why container CPUs cannot be set on a host; empty if they can.
func UnsupportedReason(layout cgroup.Layout) string {
	switch {
	case layout.Pods == "":
		return "no kubepods cgroup: no kubelet runs on this host"
	case !layout.HasFile("cpuset", cgroup.FileCPUs):
		return fmt.Sprintf("cgroup %s has no %s for pods", layout.Version, cgroup.FileCPUs)
	}
	return ""
}

// readAllowed reads the CPUs or memory nodes that pods may use at all. It returns false if they are unlimited or unreadable.
func (c *cpusetWriter) readAllowed(file string) (set numa.CPUSet, ok bool) {
	path, err := c.layout.SettingFile(c.layout.Pods, file)
	if err != nil {
		return set, false
	}
	if c.layout.Version == cgroup.V2 {
		path += ".effective" // An empty list of a v2 group means that of its parent.
	}
	content, err := c.reader.ReadPath(path)
	if err != nil {
		return set, false
	}
	set, err = numa.ParseCPUSet(string(content))
	return set, err == nil && set.Len() > 0
}

// readSetting reads a file of a cgroup; gone reports that the cgroup was removed.
func (c *cpusetWriter) readSetting(path, file string) (value string, gone bool, err error) {
	value, err = c.layout.ReadSetting(c.reader, path, file)
	if !errors.Is(err, host.ErrGone) {
		return value, false, err
	}
	if name, err := c.layout.SettingFile(path, file); err == nil {
		if _, err := os.Stat(filepath.Dir(name)); err == nil {
			return "", false, fmt.Errorf("%s does not exist: the controller is disabled for the group", name)
		}
	}
	return "", true, nil
}

// apply writes the desired CPUs and memory nodes of a container and reports whether that took a write (in a dry run: whether it would).
func (c *cpusetWriter) apply(g *containerTarget) (wrote bool, err error) {
	wrote, err = c.applySetting(g, UnitKindCPUs, cgroup.FileCPUs, g.cpus.String())
	if err != nil {
		return wrote, err
	}
	wroteMems, err := c.applySetting(g, UnitKindMems, cgroup.FileMems, g.mems)
	return wrote || wroteMems, err
}

func (c *cpusetWriter) applySetting(g *containerTarget, kind, file, value string) (bool, error) {
	key := kind + "/" + g.id
	held := false
	if c.journal != nil {
		_, held = c.journal.Entry(key)
	}
	if value == "" {
		if !held {
			return false, nil
		}
		if err := c.journal.Undo(key); err != nil {
			return false, fmt.Errorf("failed to restore %s of %s: %w", file, g.owner, err)
		}
		return true, nil
	}
	now, gone, err := c.readSetting(g.path, file)
	if gone || err == nil && cgroup.EqualSettings(file, now, value) {
		return false, nil
	}
	if err != nil || c.journal == nil {
		return err == nil, err
	}
	err = c.journal.Change(act.Unit{Key: key, Subject: g.owner, Changes: []act.Change{{Group: g.path, File: file, Value: value}}})
	if err != nil {
		return false, fmt.Errorf("set %s: %w", file, err)
	}
	return true, nil
}

// undoRemoved drops the journal units of removed containers.
func (c *cpusetWriter) undoRemoved(containers map[string]bool) error {
	if c.journal == nil {
		return nil
	}
	var errs []error
	for _, e := range c.journal.Entries() {
		kind, id, _ := strings.Cut(e.Key, "/")
		if (kind == UnitKindCPUs || kind == UnitKindMems) && !containers[id] {
			errs = append(errs, c.journal.Undo(e.Key))
		}
	}
	return errors.Join(errs...)
}

// clearInherited lets containers run on all CPUs allowed to pods, without a journal unit that would restore the previous CPUs.
func (c *cpusetWriter) clearInherited(containers map[string][]*cgroup.Container) error {
	all, limited := c.readAllowed(cgroup.FileCPUs)
	if c.journal == nil || !limited {
		return nil
	}
	var errs []error
	for uid, list := range containers {
		for _, container := range list {
			g := &containerTarget{id: container.ID, path: container.Path, owner: "pod " + uid}
			now, gone, err := c.readSetting(g.path, cgroup.FileCPUs)
			if err == nil && !gone && now != "" {
				if _, err = c.applySetting(g, UnitKindCPUs, cgroup.FileCPUs, all.String()); err == nil {
					err = c.journal.Forget(UnitKindCPUs + "/" + g.id)
				}
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// undoAll restores all containers.
func (c *cpusetWriter) undoAll() error {
	if c.journal == nil {
		return nil
	}
	return errors.Join(c.journal.UndoKind(UnitKindCPUs), c.journal.UndoKind(UnitKindMems))
}

// listContainers returns the cgroups of all containers, including sandboxes, by pod UID. The list is rebuilt after containers came or
// went.
func (m *Manager) listContainers() (map[string][]*cgroup.Container, error) {
	if err := m.tree.Scan(); err != nil && !errors.Is(err, host.ErrGone) {
		return nil, fmt.Errorf("pods' groups: %w", err)
	}
	if changes := m.tree.Version(); m.containersByPod == nil || m.containersVersion != changes {
		m.containersByPod, m.containersVersion = map[string][]*cgroup.Container{}, changes
		for _, p := range m.tree.Pods() {
			m.containersByPod[p.UID] = append(m.containersByPod[p.UID], p.Containers...)
		}
	}
	return m.containersByPod, nil
}
