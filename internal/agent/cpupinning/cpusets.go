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

// Kinds of units in the journal: which CPUs a container may run on, and from which zones its memory is.
const (
	unitKindCPUs = "cpuset"
	unitKindMems = "memset"
)

// containerTarget is a container's cgroup and what it is to be.
type containerTarget struct {
	id   string // of the container
	path string
	// owner is for people.
	owner string
	// cpus is where it is to run; empty for wherever it was before the agent came.
	cpus numa.CPUSet
	// mems are the numbers of the zones; empty likewise.
	mems string
	// rank orders the writes: those who give CPUs up come first, so that a CPU is nobody's before it is somebody's alone.
	rank int
}

// cpusetWriter writes sets of CPUs of containers. It is not safe for concurrent use.
type cpusetWriter struct {
	layout cgroup.Layout
	reader *host.Reader
	// journal is nil in a dry run: then nothing is written, and changes are only counted.
	journal *act.Journal
}

// unsupportedReason says why containers cannot be given CPUs on this host; empty where they can.
func (c *cpusetWriter) unsupportedReason() string {
	switch {
	case c.layout.Pods == "":
		return "there is no kubepods group: no kubelet runs here"
	case !c.layout.HasFile("cpuset", cgroup.FileCPUs):
		return fmt.Sprintf("cgroup %s has no %s for pods", c.layout.Version, cgroup.FileCPUs)
	}
	return ""
}

// readAllowed are the CPUs and the zones of memory that pods may have at all. What cannot be read is not limited: ok is false.
func (c *cpusetWriter) readAllowed(file string) (set numa.CPUSet, ok bool) {
	path, err := c.layout.SettingFile(c.layout.Pods, file)
	if err != nil {
		return set, false
	}
	if c.layout.Version == cgroup.V2 {
		path += ".effective" // A group of v2 that was set to nothing has what its parent has.
	}
	content, err := c.read(path)
	if err != nil {
		return set, false
	}
	set, err = numa.ParseCPUSet(string(content))
	return set, err == nil && set.Len() > 0
}

// read reads a file; what it returns is valid until the next.
func (c *cpusetWriter) read(path string) ([]byte, error) {
	file := host.NewFile(path)
	defer file.Close()
	return c.reader.Read(&file)
}

// readSetting is what a file of a group holds. gone tells that the group is not there any more.
func (c *cpusetWriter) readSetting(path, file string) (value string, gone bool, err error) {
	name, err := c.layout.SettingFile(path, file)
	if err != nil {
		return "", false, fmt.Errorf("container's group: %w", err)
	}
	content, err := c.read(name)
	switch {
	case errors.Is(err, host.ErrGone):
		if _, err := os.Stat(filepath.Dir(name)); err == nil {
			return "", false, fmt.Errorf("%s is not there: the controller is switched off for it", name)
		}
		return "", true, nil
	case err != nil:
		return "", false, fmt.Errorf("container's group: %w", err)
	}
	return strings.TrimSpace(string(content)), false, nil
}

// apply brings a group to what it is to be, and tells whether that took a write (or, in a dry run, would).
func (c *cpusetWriter) apply(g *containerTarget) (wrote bool, err error) {
	wrote, err = c.applySetting(g, unitKindCPUs, cgroup.FileCPUs, g.cpus.String())
	if err != nil {
		return wrote, err
	}
	too, err := c.applySetting(g, unitKindMems, cgroup.FileMems, g.mems)
	return wrote || too, err
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
			return false, fmt.Errorf("give %s back to %s: %w", file, g.owner, err)
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

// undoRemoved drops units of containers that are not there any more.
func (c *cpusetWriter) undoRemoved(there map[string]bool) error {
	if c.journal == nil {
		return nil
	}
	var errs []error
	for _, e := range c.journal.Entries() {
		kind, id, _ := strings.Cut(e.Key, "/")
		if (kind == unitKindCPUs || kind == unitKindMems) && !there[id] {
			errs = append(errs, c.journal.Undo(e.Key))
		}
	}
	return errors.Join(errs...)
}

// clearInherited lets containers run on all CPUs that pods may have, for good: it is not in the journal afterwards.
func (c *cpusetWriter) clearInherited(there map[string][]*cgroup.Container) error {
	all, limited := c.readAllowed(cgroup.FileCPUs)
	if c.journal == nil || !limited {
		return nil
	}
	var errs []error
	for uid, list := range there {
		for _, container := range list {
			g := &containerTarget{id: container.ID, path: container.Path, owner: "pod " + uid}
			now, gone, err := c.readSetting(g.path, cgroup.FileCPUs)
			if err == nil && !gone && now != "" {
				if _, err = c.applySetting(g, unitKindCPUs, cgroup.FileCPUs, all.String()); err == nil {
					err = c.journal.Forget(unitKindCPUs + "/" + g.id)
				}
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// undoAll puts everything back.
func (c *cpusetWriter) undoAll() error {
	if c.journal == nil {
		return nil
	}
	return errors.Join(c.journal.UndoKind(unitKindCPUs), c.journal.UndoKind(unitKindMems))
}

// listContainers are the groups of all containers of pods, sandboxes included, by the pod's UID. The list is made anew where one came or went.
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
