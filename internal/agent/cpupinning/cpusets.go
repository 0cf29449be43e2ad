// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/topology"
	"crane.io/crane/pkg/cpumanager"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// Kinds of journal units: the CPUs of a container and its memory nodes.
const (
	UnitKindCPUs = "cpuset"
	UnitKindMems = "memset"
	// UnitKindQuota is the kind of the CPU quotas of containers with exclusive CPUs and of their pods.
	UnitKindQuota = "exclusive-quota"
)

// containerTarget is the cgroup of a container with its desired CPUs and memory nodes.
type containerTarget struct {
	id   string // container ID
	path string
	pod  string // UID
	// owner names the pod and container in messages.
	owner string
	// cpus is empty if the container gets back the CPUs that it had before the agent changed them.
	cpus numa.CPUSet
	// mems lists NUMA node numbers as cpuset.mems does; empty restores them.
	mems string
	// ownCPUs means that no other container runs on the CPUs.
	ownCPUs bool
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
func (c *cpusetWriter) readSetting(path, file string) (value string, removed bool, err error) {
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
func (c *cpusetWriter) apply(target *containerTarget) (wrote bool, err error) {
	wrote, err = c.applySetting(target, UnitKindCPUs, cgroup.FileCPUs, target.cpus.String())
	if err != nil {
		return wrote, err
	}

	wroteMems, err := c.applySetting(target, UnitKindMems, cgroup.FileMems, target.mems)
	return wrote || wroteMems, err
}

func (c *cpusetWriter) applySetting(target *containerTarget, kind, file, value string) (bool, error) {
	key := kind + "/" + target.id
	changed := false
	// A dry run has no journal, and so nothing to restore.
	if c.journal != nil {
		_, changed = c.journal.Entry(key)
	}

	if value == "" {
		if !changed {
			return false, nil
		}

		if err := c.journal.Undo(key); err != nil {
			return false, fmt.Errorf("restoring %s of %s: %w", file, target.owner, err)
		}

		return true, nil
	}

	now, removed, err := c.readSetting(target.path, file)
	if removed || err == nil && cgroup.EqualSettings(file, now, value) {
		return false, nil
	}
	if err != nil || c.journal == nil {
		return err == nil, err
	}

	err = c.journal.Change(act.Unit{Key: key, Subject: target.owner, Changes: []act.Change{{Group: target.path, File: file, Value: value}}})
	if err != nil {
		return false, fmt.Errorf("setting %s: %w", file, err)
	}

	return true, nil
}

// liftQuotas lifts the CPU quotas of groups, whose subjects are the values, and restores those of all others. CPUs of their own bound a
// container already, and with a quota the kernel stops its threads at the end of a period that they have used up, as the kubelet of
// Kubernetes 1.33 and newer avoids as well.
func (c *cpusetWriter) liftQuotas(groups map[string]string) error {
	if c.journal == nil {
		return nil
	}

	var errs []error
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		if err := c.liftQuota(group, groups[group]); err != nil {
			errs = append(errs, fmt.Errorf("lifting the CPU quota of %s: %w", groups[group], err))
		}
	}

	for _, e := range c.journal.Entries() {
		group, isQuota := strings.CutPrefix(e.Key, UnitKindQuota+"/")
		if !isQuota {
			continue
		}

		if _, lifted := groups[group]; !lifted {
			errs = append(errs, c.journal.Undo(e.Key))
		}
	}

	return errors.Join(errs...)
}

// liftQuota lifts the CPU quota of a group; its period stays.
func (c *cpusetWriter) liftQuota(group, subject string) error {
	key := UnitKindQuota + "/" + group
	limit, err := act.CurrentLimit(c.journal, key, group)
	if errors.Is(err, host.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}

	if limit.Unlimited() {
		return nil
	}

	limit.Quota = -1
	return c.journal.Change(act.Unit{Key: key, Subject: subject, Changes: act.QuotaChanges(c.layout.Version, group, limit)})
}

// changed reports whether the journal has CPUs of containers.
func (c *cpusetWriter) changed() bool {
	if c.journal == nil {
		return false
	}

	return slices.ContainsFunc(c.journal.Entries(), func(e act.Entry) bool { return strings.HasPrefix(e.Key, UnitKindCPUs+"/") })
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
			target := &containerTarget{id: container.ID, path: container.Path, owner: "pod " + uid}
			now, removed, err := c.readSetting(target.path, cgroup.FileCPUs)
			if err == nil && !removed && now != "" {
				if _, err = c.applySetting(target, UnitKindCPUs, cgroup.FileCPUs, all.String()); err == nil {
					err = c.journal.Forget(UnitKindCPUs + "/" + target.id)
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

	return errors.Join(c.journal.UndoKind(UnitKindQuota), c.journal.UndoKind(UnitKindCPUs), c.journal.UndoKind(UnitKindMems))
}

// listContainers returns the cgroups of all containers, including sandboxes, by pod UID. The list is rebuilt after containers came or
// went.
func (m *Manager) listContainers() (map[string][]*cgroup.Container, error) {
	if err := m.tree.Scan(); err != nil && !errors.Is(err, host.ErrGone) {
		return nil, fmt.Errorf("listing the pods' cgroups: %w", err)
	}

	if version := m.tree.Version(); m.containersByPod == nil || m.containersVersion != version {
		m.containersByPod = map[string][]*cgroup.Container{}
		m.containersVersion = version
		for _, p := range m.tree.Pods() {
			m.containersByPod[p.UID] = append(m.containersByPod[p.UID], p.Containers...)
		}
	}

	return m.containersByPod, nil
}

// maxUseAge is the greatest age of a measurement of memory by which containers are bound to zones.
const maxUseAge = time.Minute

// bindMemory decides which containers may allocate memory only in the zones of their CPUs; none if the setting is off or the use of the
// zones is unknown.
func (m *Manager) bindMemory(machine cpumanager.Machine, node *topology.NodeTopology, requests []cpumanager.Pod) {
	if !m.config.BindMemory {
		return
	}

	var err error
	if machine.OtherMemory, err = m.measureOtherMemory(machine, node); err != nil {
		m.problems.Log("memory", "binding no memory to zones: "+err.Error())
		m.boundMemory = nil
		return
	}

	m.problems.Log("memory", "")
	bound, unbound := cpumanager.BindMemory(machine, &m.plan, requests, m.boundMemory)
	m.logUnboundMemory(unbound)
	m.boundMemory = bound
}

// measureOtherMemory returns the memory in use in each zone of the machine, without that of bound containers and as far as it exceeds what
// the kubelet keeps from pods. The memory of a bound container counts as distributed like its CPUs.
func (m *Manager) measureOtherMemory(machine cpumanager.Machine, node *topology.NodeTopology) (map[string]units.Bytes, error) {
	s := m.config.Latest.Load()
	if s == nil {
		return nil, errors.New("the use of memory is unknown")
	}

	if age := m.config.Clock.Since(s.At); age > maxUseAge {
		return nil, fmt.Errorf("the use of memory was measured %s ago", age.Truncate(time.Second))
	}

	used := map[string]units.Bytes{}
	for i := range node.Machine.Zones {
		z := &node.Machine.Zones[i]
		found := false
		for j := range s.Node.Zones {
			if seen := &s.Node.Zones[j]; seen.ID == z.ID && seen.Memory.OK {
				used[z.Name()] = seen.Memory.Value.Used()
				found = true
			}
		}

		if !found && machine.Memory[z.Name()] > 0 {
			return nil, fmt.Errorf("the use of memory of zone %s is unknown", z.Name())
		}
	}

	// The plan accounts for bound containers itself, each zone by its share of the CPUs.
	counts := map[cpumanager.ID]map[string]int{}
	for _, a := range m.plan.Assignments {
		if m.boundMemory[a.ID] != nil {
			counts[a.ID] = a.Zones
		}
	}

	for i := range s.Pods {
		for j := range s.Pods[i].Containers {
			c := &s.Pods[i].Containers[j]
			zones := counts[cpumanager.ID{Pod: s.Pods[i].UID, Container: m.containerNames[c.ID]}]
			if zones == nil || !c.Memory.OK {
				continue
			}

			cpus := 0
			for _, n := range zones {
				cpus += n
			}

			for zone, n := range zones {
				used[zone] -= c.Memory.Value.Unreclaimable() * units.Bytes(n) / units.Bytes(cpus)
			}
		}
	}

	for i := range node.Machine.Zones {
		z := &node.Machine.Zones[i]
		used[z.Name()] = max(used[z.Name()]-(z.Memory-machine.Memory[z.Name()]), 0)
	}

	return used, nil
}

// logUnboundMemory logs containers whose memory is not bound to their zones, once per reason.
func (m *Manager) logUnboundMemory(unbound map[cpumanager.ID]string) {
	for id, why := range unbound {
		if m.loggedMemory[id] != why {
			m.config.Log.V(1).Info("memory is not bound to zones", "container", id.String(), "reason", why)
		}
	}

	m.loggedMemory = unbound
}
